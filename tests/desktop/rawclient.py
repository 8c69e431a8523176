"""An RFB client of the tests' own, byte by byte: the server is not judged by its own code."""

import asyncio
import contextlib
import struct
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
LIMIT_S = 300


def within_limit(scenario: Callable[[], Awaitable[T]]) -> T:
    """Run a scenario; a hang is a failure, not a stuck test run."""

    async def limited() -> T:
        async with asyncio.timeout(LIMIT_S):
            return await scenario()

    return asyncio.run(limited())


@dataclass
class RawClient:
    """A connection after ServerInit."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    width: int
    height: int
    native: bytes
    name: str
    inflate: Any = field(default_factory=zlib.decompressobj)

    @classmethod
    async def connect(cls, port: int, version: bytes = b"RFB 003.008\n") -> "RawClient":
        """Shake hands with security None, as a client of the given version."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.readexactly(12) == b"RFB 003.008\n"
        writer.write(version)
        if version == b"RFB 003.003\n":
            assert await reader.readexactly(4) == b"\0\0\0\1"
        else:
            assert await reader.readexactly(2) == b"\1\1"
            writer.write(b"\1")
        if version == b"RFB 003.008\n":
            assert await reader.readexactly(4) == b"\0\0\0\0"
        writer.write(b"\1")
        width, height, native, size = struct.unpack(">HH16sI", await reader.readexactly(24))
        name = (await reader.readexactly(size)).decode()
        return cls(reader, writer, width, height, native, name)

    def set_format(self, bits, big, maxima, shifts, true_colour=1) -> None:
        body = struct.pack(">BBBBHHHBBB3x", bits, 24, big, true_colour, *maxima, *shifts)
        self.writer.write(b"\0\0\0\0" + body)

    def set_encodings(self, *codes: int) -> None:
        self.writer.write(struct.pack(f">BxH{len(codes)}i", 2, len(codes), *codes))

    def ask(self, incremental: bool, box: tuple[int, int, int, int] | None = None) -> None:
        """Request an update of (x, y, width, height); the whole screen by default."""
        x, y, w, h = box or (0, 0, self.width, self.height)
        self.writer.write(struct.pack(">BBHHHH", 3, incremental, x, y, w, h))

    def key(self, keysym: int) -> None:
        """Press and release."""
        for down in (1, 0):
            self.writer.write(struct.pack(">BBxxI", 4, down, keysym))

    def point(self, x: int, y: int, buttons: int = 0) -> None:
        self.writer.write(struct.pack(">BBHH", 5, buttons, x, y))

    async def update(self, octets: int = 4) -> list[tuple[int, tuple[int, int, int, int], bytes]]:
        """The next FramebufferUpdate: (encoding, (x, y, w, h), pixels) of each rectangle."""
        kind, count = struct.unpack(">BxH", await self.reader.readexactly(4))
        assert kind == 0, f"expected FramebufferUpdate, got message {kind}"
        rectangles = []
        for _ in range(count):
            x, y, w, h, code = struct.unpack(">HHHHi", await self.reader.readexactly(12))
            if code == 6:
                (size,) = struct.unpack(">I", await self.reader.readexactly(4))
                body = self.inflate.decompress(await self.reader.readexactly(size))
            else:
                body = await self.reader.readexactly(w * h * octets)
            rectangles.append((code, (x, y, w, h), body))
        return rectangles

    async def patch(self, screen: np.ndarray) -> list[tuple[int, int, int, int]]:
        """Apply the next update (in the native format) to a uint8 (h, w, 3) screen; its boxes."""
        boxes = []
        for _, (x, y, w, h), body in await self.update():
            pixels = np.frombuffer(body, np.uint8).reshape(h, w, 4)
            screen[y : y + h, x : x + w] = pixels[..., :3]
            boxes.append((x, y, w, h))
        return boxes

    async def screen(self) -> np.ndarray:
        """A whole new screen, uint8 (h, w, 3)."""
        self.ask(incremental=False)
        screen = np.zeros((self.height, self.width, 3), np.uint8)
        assert await self.patch(screen) == [(0, 0, self.width, self.height)]
        return screen

    async def quiet(self, seconds: float = 0.05) -> bool:
        """Whether the server says nothing for a while (a byte that it says is lost)."""
        try:
            await asyncio.wait_for(self.reader.readexactly(1), seconds)
        except TimeoutError:
            return True
        return False

    async def ended(self) -> bool:
        """Whether the server hangs up (whatever it still says before)."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read()
        return True

    def close(self) -> None:
        self.writer.close()
