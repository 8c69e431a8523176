"""A hostile RFB server costs its client a frame's memory at most, never what it announces."""

import asyncio
import struct
import tracemalloc
import zlib

import pytest
from hud.capabilities import Capability

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.limits import MOST_PIXELS, LimitedReader, bounded_inflate, frame_bytes
from cua_lab.computer.screen import DeadScreen, Screen
from cua_lab.computer.tool import ComputerTool

GREETING = b"RFB 003.008\n" + b"\x01\x01" + bytes(4)
RGBX = struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 0, 8, 16)
BILLIONS = 2**32 - 1


def init(width: int, height: int, name: int = 0) -> bytes:
    return struct.pack(">HH", width, height) + RGBX + struct.pack(">I", name)


def update(width: int, height: int, encoding: int, rest: bytes = b"") -> bytes:
    return b"\0\0\0\x01" + struct.pack(">HHHHi", 0, 0, width, height, encoding) + rest


async def look(port: int) -> None:
    client = await Screen.connect(Capability.rfb(url=f"rfb://127.0.0.1:{port}"))
    tool = ComputerTool(client=client, config=ToolConfig(screen_timeout_s=20.0))
    await tool.execute({"action": "screenshot"})


BOMB = zlib.compress(bytes(200 * 2**20), 9)
HOSTILE = {
    "a name of 4 GiB": init(64, 64, BILLIONS),
    "a screen of 17 GiB": init(65535, 65535) + update(65535, 65535, 0),
    "no screen": init(0, 0),
    "a rectangle larger than the screen": init(64, 64) + update(65535, 65535, 0),
    "deflated 4 GiB": init(64, 64) + update(64, 64, 6, struct.pack(">I", BILLIONS)),
    "a bomb": init(64, 64) + update(64, 64, 6, struct.pack(">I", len(BOMB)) + BOMB),
    "a clipboard of 4 GiB": init(64, 64) + b"\x03\0\0\0" + struct.pack(">I", BILLIONS),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_a_hostile_server_announces_is_not_collected(kind) -> None:
    """It sends 64 MiB of what it announced; 8.3 GB were held for it."""

    async def serve(reader, writer) -> None:
        writer.write(GREETING + HOSTILE[kind])
        for _ in range(1024):
            writer.write(bytes(64 * 1024))
            try:
                await writer.drain()
            except OSError:
                break
        writer.close()

    async def scenario() -> int:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        tracemalloc.start()
        try:
            with pytest.raises((DeadScreen, ValueError, OSError, EOFError)):
                await look(port)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            server.close()

    assert asyncio.run(scenario()) < 16 * 2**20


def test_a_screen_that_can_be_is_taken() -> None:
    assert frame_bytes(7680, 4320) == 4 * 7680 * 4320
    with pytest.raises(ValueError, match=str(MOST_PIXELS)):
        frame_bytes(65535, 65535)


def test_a_length_that_is_too_great_is_named_with_the_limit() -> None:
    async def scenario() -> bytes:
        inner = asyncio.StreamReader()
        inner.feed_data(b"abcd")
        reader = LimitedReader(inner, most=4)
        with pytest.raises(ValueError, match="announces 5 bytes; at most 4"):
            await reader.readexactly(5)
        return await reader.readexactly(4)

    assert asyncio.run(scenario()) == b"abcd"


def test_a_rectangle_inflates_to_its_size_and_no_further() -> None:
    inflate = bounded_inflate(1000)
    stream = zlib.compressobj()
    packed = stream.compress(bytes(1000)) + stream.flush(zlib.Z_SYNC_FLUSH)
    assert inflate(packed) == bytes(1000)
    packed = stream.compress(bytes(100_000)) + stream.flush(zlib.Z_SYNC_FLUSH)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        inflate(packed)
