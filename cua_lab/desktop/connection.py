"""One client's connection: what it has been shown, what it holds down, what it waits for.

Invariant: `_shown` is exactly what the client's copy of the screen holds, so an incremental update
may send the difference and nothing else.
"""

import asyncio
from asyncio import StreamReader, StreamWriter
from typing import Protocol

from cua_lab.desktop import rfb_messages as wire
from cua_lab.desktop.app import App
from cua_lab.desktop.encodings import RAW, ZLIB, Frame, RawEncoder, Shown, ZlibEncoder, palette
from cua_lab.desktop.geometry import Box

BURST = 256
"""Messages handled before the event loop gets a turn, so that a flood starves nobody."""


class Host(Protocol):
    """What a session needs of its server."""

    app: App
    zlib_level: int | None
    stall_s: float

    def frame(self) -> Frame: ...
    def changed(self) -> None: ...


class Session:
    """The state of one connection and the handling of its messages."""

    def __init__(self, host: Host, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._host = host
        self._format = wire.RGBX
        self._encoder: RawEncoder | ZlibEncoder = RawEncoder()
        self._zlib: ZlibEncoder | None = None
        self._shown = Shown()
        self._wanted: Box | None = None
        self._keys: dict[int, None] = {}  # held now, in order
        self._pointer = wire.PointerEvent(0, 0, 0)

    @property
    def waits(self) -> bool:
        """Whether an incremental request is still unanswered."""
        return self._wanted is not None

    async def run(self) -> None:
        """Handle messages, in order, until the client hangs up."""
        handled = 0
        while (message := await wire.read_message(self.reader)) is not None:
            self._handle(message)
            await self._flush()
            handled += 1
            if handled % BURST == 0:
                await asyncio.sleep(0)

    def hang_up(self) -> None:
        """Close; what the client will not read is thrown away."""
        if self.writer.transport.get_write_buffer_size():
            self.writer.transport.abort()
        else:
            self.writer.close()

    def release(self) -> None:
        """Let go of what the client still held, or the next one meets a stuck Shift."""
        for keysym in reversed(list(self._keys)):
            self._host.app.key(keysym, False)
        if self._pointer.buttons:
            self._host.app.pointer(self._pointer.x, self._pointer.y, 0)
        if self._keys or self._pointer.buttons:
            self._host.changed()
        self._keys.clear()
        self._pointer = wire.PointerEvent(0, 0, 0)

    def show_changes(self) -> None:
        """Answer a waiting incremental request if its area has changed."""
        if self._wanted is None:
            return
        frame, area = self._host.frame(), self._wanted
        boxes = self._shown.differences(frame, area)
        if boxes:
            self._wanted = None
            self._send(frame, boxes)

    def _handle(self, message: wire.Message) -> None:
        match message:
            case wire.UpdateRequest():
                self._update(message)
            case wire.KeyEvent(down, keysym):
                self._key(keysym, down)
            case wire.PointerEvent():
                self._point(message)
            case wire.SetPixelFormat(form):
                self._format = form
                self._shown = Shown()  # its copy was in the old format: all of it anew
                if not form.true_colour:
                    self.writer.write(wire.colour_map(palette()))
            case wire.SetEncodings(encodings):
                self._encoder = self._choose(encodings)
            case wire.CutText():
                pass

    def _choose(self, encodings: tuple[int, ...]) -> RawEncoder | ZlibEncoder:
        """The first encoding we speak; Raw is always allowed."""
        level = self._host.zlib_level
        best = next((code for code in encodings if code in (RAW, ZLIB)), RAW)
        if best == RAW or level is None:
            return RawEncoder()
        # One stream for the whole connection, even if the client changes its mind and back.
        self._zlib = self._zlib or ZlibEncoder(level)
        return self._zlib

    def _key(self, keysym: int, down: bool) -> None:
        self._keys.pop(keysym, None)
        if down:
            self._keys[keysym] = None
        self._host.app.key(keysym, down)
        self._host.changed()

    def _point(self, event: wire.PointerEvent) -> None:
        width, height = self._host.app.size
        x, y = min(event.x, width - 1), min(event.y, height - 1)
        self._pointer = wire.PointerEvent(event.buttons, x, y)
        self._host.app.pointer(x, y, event.buttons)
        self._host.changed()

    def _update(self, request: wire.UpdateRequest) -> None:
        asked = Box.at(request.x, request.y, request.width, request.height)
        area = asked.overlap(Box(0, 0, *self._host.app.size))
        if area is None:
            self.writer.write(wire.update_header(0))
        elif request.incremental:
            self._wanted = area
            self.show_changes()
        else:
            self._wanted = None
            self._send(self._host.frame(), [area])

    def _send(self, frame: Frame, boxes: list[Box]) -> None:
        parts = [wire.update_header(len(boxes))]
        for box in boxes:
            parts += self._encoder.rectangle(frame, box, self._format)
        self.writer.write(b"".join(parts))
        self._shown.take(frame, boxes)

    async def _flush(self) -> None:
        """Wait for a client that is behind, but not for ever."""
        if self.writer.transport.get_write_buffer_size() == 0:
            return
        try:
            async with asyncio.timeout(self._host.stall_s):
                await self.writer.drain()
        except TimeoutError:
            raise wire.ProtocolError(
                f"the client read nothing for {self._host.stall_s:g} s"
            ) from None
