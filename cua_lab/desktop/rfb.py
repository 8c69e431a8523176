"""The RFB server: an app's screen, keyboard and pointer on a loopback port.

A connection's messages are handled one after the other, and an update request is answered from a
screen drawn after everything before it. So a screenshot asked for after an action shows the
action's result, exactly, with no sleep. That order is the invariant; everything else here (dirty
rectangles, several clients, limits on clients that misbehave) must not break it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
from types import TracebackType
from typing import Self

from cua_lab.desktop.app import App
from cua_lab.desktop.auth import handshake, read_password
from cua_lab.desktop.connection import Session
from cua_lab.desktop.encodings import Frame
from cua_lab.desktop.near_streams import NearWriter, listen_near, stop_near
from cua_lab.desktop.rfb_messages import ProtocolError, server_init
from cua_lab.desktop.screen_context import app_looker, register, unregister
from cua_lab.errors import LabError

LOGGER = logging.getLogger(__name__)
HANDSHAKE_S = 10.0
"""A client that has not introduced itself by then is sent away."""


class RFBServer:
    """Serves one app to any number of clients that share it.

    `port` 0 takes a free one; `password_file` (a path: its first line is the password) turns VNC
    authentication on. `zlib_level` None always sends Raw, as RFB allows whatever a client prefers:
    on loopback that is the fastest (640x600 through asyncvnc: Raw 3 ms, ZLib 4 to 6 ms); with a
    level, clients that prefer ZLib get it. A client that takes no data for `stall_s` seconds is
    cut off.
    """

    def __init__(
        self,
        app: App,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        password_file: str | os.PathLike[str] | None = None,
        name: str = "cua-lab",
        zlib_level: int | None = None,
        stall_s: float = 10.0,
    ) -> None:
        self.app = app
        self.host = loopback(host)
        self.name = name
        self.zlib_level = zlib_level
        self.stall_s = stall_s
        self.size = app.size
        self._wanted_port = port
        self._password = None if password_file is None else read_password(password_file)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sessions: set[Session] = set()
        self._frame: Frame | None = None
        self._wake_planned = False

    async def start(self) -> Self:
        """Listen; a port that is taken is a `LabError`."""
        try:
            self._server = await asyncio.start_server(self._accept, self.host, self._wanted_port)
        except OSError as error:
            raise LabError(
                f"cannot listen on {self.host}:{self._wanted_port}: {error.strerror or error}; "
                "choose another port, or port 0 for a free one"
            ) from error
        register(self.url, app_looker(lambda: self.app))
        listen_near(self.host, self.port, self._accept)
        return self

    async def close(self) -> None:
        """Stop listening, hang up on everybody and wait until all connections are gone."""
        if self._server is not None:
            unregister(self.url)
            stop_near(self.host, self.port)
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for session in list(self._sessions):
            session.hang_up()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if server is not None:
            await server.wait_closed()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._server is None:
            raise LabError("the RFB server is not running; `await server.start()` first")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """What a client is told: `rfb://127.0.0.1:5900`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"rfb://{host}:{self.port}"

    @property
    def clients(self) -> int:
        """Connections now open."""
        return len(self._sessions)

    def frame(self) -> Frame:
        """The screen now; drawn again only when the app says so."""
        image = self.app.draw()
        if self._frame is None or self._frame.image is not image:
            if image.size != self.size or image.mode != "RGB":
                raise LabError(
                    f"the app drew {image.mode} of {image.size}; expected RGB of {self.size}"
                )
            self._frame = Frame(image)
        return self._frame

    def changed(self) -> None:
        """The app may look different: show clients that wait for it, once, a moment later.

        Called after every key and pointer event; call it yourself after a `reset` from outside.
        """
        if not self._wake_planned and any(session.waits for session in self._sessions):
            self._wake_planned = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._wake_planned = False
        for session in list(self._sessions):
            session.show_changes()

    def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter | NearWriter
    ) -> None:
        # A plain callback with a task of our own: asyncio's one, for coroutines, prints a
        # CancelledError traceback for each connection that a closing loop cancels (Python 3.11).
        session = Session(self, reader, writer)
        self._sessions.add(session)
        task = asyncio.get_running_loop().create_task(self._serve(session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, session: Session) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await handshake(session.reader, session.writer, self._password)
            session.writer.write(server_init(*self.size, self.name))
            await session.run()
        except ProtocolError as error:
            LOGGER.warning("%s: connection ended: %s", self.name, error)
        except (OSError, EOFError, TimeoutError) as error:
            LOGGER.info("%s: connection lost: %r", self.name, error)
        except Exception:
            LOGGER.exception("%s: the app failed; its connection ends", self.name)
        finally:
            self._sessions.discard(session)
            session.hang_up()
            session.release()


def loopback(host: str) -> str:
    """The address to listen on, or a `LabError` for one that others could reach."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        if ipaddress.ip_address(host).is_loopback:
            return host
    except ValueError:
        pass
    raise LabError(
        f"a desktop listens on loopback only, not on {host!r}: anybody who reaches the port can "
        "drive it. Use 127.0.0.1, and an SSH tunnel to look from another machine"
    )
