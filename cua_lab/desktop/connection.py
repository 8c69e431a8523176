"""One client's connection: what it has been shown, what it holds down, what it waits for.

Invariant: `_shown` is exactly what the client's copy of the screen holds, so an incremental update
may send the difference and nothing else.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from typing import Protocol

from cua_lab.desktop import rfb_messages as wire
from cua_lab.desktop.app import App
from cua_lab.desktop.encodings import RAW, ZLIB, Frame, RawEncoder, Shown, ZlibEncoder, palette
from cua_lab.desktop.geometry import Box
from cua_lab.desktop.near_streams import NearWriter

BURST = 256
"""Messages handled before the event loop gets a turn, so that a flood starves nobody."""
MOST_AREAS = 16
"""Areas that a client may wait for; with more of them it waits for the whole screen."""


class Host(Protocol):
    """What a session needs of its server."""

    app: App
    zlib_level: int | None
    stall_s: float

    def frame(self) -> Frame: ...
    def changed(self) -> None: ...


class Session:
    """The state of one connection and the handling of its messages."""

    def __init__(self, host: Host, reader: StreamReader, writer: StreamWriter | NearWriter) -> None:
        self.reader, self.writer = reader, writer
        self._host = host
        self._format = wire.RGBX
        self._encoder: RawEncoder | ZlibEncoder = RawEncoder()
        self._zlib: ZlibEncoder | None = None
        self._shown = Shown()
        self._wanted: list[Box] = []  # of incremental requests that are still unanswered
        self._keys: dict[int, None] = {}  # held now, in order
        self._pointer = wire.PointerEvent(0, 0, 0)

    @property
    def waits(self) -> bool:
        """Whether an incremental request is still unanswered."""
        return bool(self._wanted)

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
        """Answer the incremental requests that wait, all at once, if any of their areas changed."""
        if not self._wanted:
            return
        frame = self._host.frame()
        boxes = [box for area in self._wanted for box in self._shown.differences(frame, area)]
        if boxes:
            self._wanted = []
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
        area = asked.overlap(self._whole)
        if area is None:
            self.writer.write(wire.update_header(0))
        elif request.incremental:
            self._want(area)
            self.show_changes()
        else:
            self._wanted = [box for box in self._wanted if box.overlap(area) != box]
            self._send(self._host.frame(), [area])

    def _want(self, area: Box) -> None:
        """Wait for one more area; a client may ask for several before the first is answered."""
        if any(area.overlap(box) == area for box in self._wanted):
            return
        waiting = [box for box in self._wanted if box.overlap(area) != box]
        self._wanted = [*waiting, area] if len(waiting) < MOST_AREAS else [self._whole]

    @property
    def _whole(self) -> Box:
        return Box(0, 0, *self._host.app.size)

    def _send(self, frame: Frame, boxes: list[Box]) -> None:
        parts = [wire.update_header(len(boxes))]
        for box in boxes:
            parts += self._encoder.rectangle(frame, box, self._format)
        self.writer.write(b"".join(parts))
        self._shown.take(frame, boxes)

    async def _flush(self) -> None:
        """Wait for a client that is behind, but not forever."""
        if self.writer.transport.get_write_buffer_size() == 0:
            return
        try:
            async with asyncio.timeout(self._host.stall_s):
                await self.writer.drain()
        except TimeoutError:
            raise wire.ProtocolError(
                f"the client read nothing for {self._host.stall_s:g} s"
            ) from None
