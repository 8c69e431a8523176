"""RFB 3.8 on the wire: the messages a client sends, as dataclasses, and the server's few.

Every message is read whole before anybody sees it: a client that breaks the protocol raises
`ProtocolError` and can cost nobody more memory than the longest message, 256 KiB of encodings.
"""

from __future__ import annotations

import struct
from asyncio import StreamReader
from dataclasses import dataclass
from typing import TypeAlias

PIECE = 64 * 1024
"""Bytes of a clipboard that are held at once; nothing here reads it, it is only skipped."""
MAX_CUT_TEXT = 64 * 2**20
"""Bytes of clipboard a client may send: a person who copies a log sends megabytes, and 256 KiB
ended the connection (TigerVNC/tigervnc#1482); more than this is a client out of step."""


class ProtocolError(Exception):
    """The peer broke the protocol; its connection ends."""


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """How a client wants its pixels: a value of `bits` per pixel, channels by shift and maximum."""

    bits: int
    depth: int
    big_endian: bool
    true_colour: bool
    maxima: tuple[int, int, int]
    """Largest value of red, green, blue."""
    shifts: tuple[int, int, int]
    """How far left each channel stands in the value."""

    def __post_init__(self) -> None:
        if self.bits not in (8, 16, 24, 32):
            raise ProtocolError(f"pixel format of {self.bits} bits; expected 8, 16, 24 or 32")
        if not self.true_colour:
            return
        for name, top, shift in zip(
            ("red", "green", "blue"), self.maxima, self.shifts, strict=True
        ):
            if top.bit_length() + shift > self.bits:
                raise ProtocolError(
                    f"{name} (maximum {top}, shift {shift}) does not fit in {self.bits} bits"
                )

    @classmethod
    def unpack(cls, data: bytes) -> PixelFormat:
        """From the 16 bytes of SetPixelFormat or ServerInit."""
        bits, depth, big, true, *rest = struct.unpack(">BBBBHHHBBB3x", data)
        red, green, blue, *shifts = rest
        return cls(bits, depth, bool(big), bool(true), (red, green, blue), tuple(shifts))

    def pack(self) -> bytes:
        """The 16 bytes of the wire."""
        head = (self.bits, self.depth, self.big_endian, self.true_colour)
        return struct.pack(">BBBBHHHBBB3x", *head, *self.maxima, *self.shifts)


RGBX = PixelFormat(32, 24, False, True, (255, 255, 255), (0, 8, 16))
"""The server's own format: bytes R, G, B, padding; asyncvnc takes it as it is ('rgba')."""


@dataclass(frozen=True, slots=True)
class SetPixelFormat:
    format: PixelFormat


@dataclass(frozen=True, slots=True)
class SetEncodings:
    encodings: tuple[int, ...]
    """As the client prefers them, best first."""


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    incremental: bool
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class KeyEvent:
    down: bool
    keysym: int


@dataclass(frozen=True, slots=True)
class PointerEvent:
    buttons: int
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class CutText:
    size: int
    """Bytes that were skipped."""


Message: TypeAlias = (
    SetPixelFormat | SetEncodings | UpdateRequest | KeyEvent | PointerEvent | CutText
)


async def read_message(reader: StreamReader) -> Message | None:
    """The client's next message; None when it hung up between two messages."""
    kind = await reader.read(1)
    if not kind:
        return None
    match kind[0]:
        case 0:
            return SetPixelFormat(PixelFormat.unpack((await reader.readexactly(19))[3:]))
        case 2:
            (count,) = struct.unpack(">xH", await reader.readexactly(3))
            body = await reader.readexactly(4 * count)
            return SetEncodings(struct.unpack(f">{count}i", body))
        case 3:
            incremental, *area = struct.unpack(">BHHHH", await reader.readexactly(9))
            return UpdateRequest(bool(incremental), *area)
        case 4:
            down, keysym = struct.unpack(">BxxI", await reader.readexactly(7))
            return KeyEvent(bool(down), keysym)
        case 5:
            return PointerEvent(*struct.unpack(">BHH", await reader.readexactly(5)))
        case 6:
            (size,) = struct.unpack(">xxxI", await reader.readexactly(7))
            if size > MAX_CUT_TEXT:
                raise ProtocolError(f"cut text of {size} bytes; at most {MAX_CUT_TEXT} are taken")
            await _skip(reader, size)
            return CutText(size)
    raise ProtocolError(f"unknown message type {kind[0]}")


async def _skip(reader: StreamReader, size: int) -> None:
    """Read and forget, a piece at a time: a clipboard of any size costs no memory."""
    while size:
        size -= len(await reader.readexactly(min(size, PIECE)))


def server_init(width: int, height: int, name: str) -> bytes:
    """ServerInit: size, native pixel format, name."""
    title = name.encode()
    return struct.pack(">HH", width, height) + RGBX.pack() + struct.pack(">I", len(title)) + title


def update_header(rectangles: int) -> bytes:
    """FramebufferUpdate, up to its first rectangle."""
    return struct.pack(">BxH", 0, rectangles)


def rectangle_header(x: int, y: int, width: int, height: int, encoding: int) -> bytes:
    return struct.pack(">HHHHi", x, y, width, height, encoding)


def colour_map(colours: list[tuple[int, int, int]]) -> bytes:
    """SetColourMapEntries from entry 0 on; colours of 8 bits a channel."""
    body = b"".join(struct.pack(">HHH", *(257 * value for value in rgb)) for rgb in colours)
    return struct.pack(">BxHH", 1, 0, len(colours)) + body
