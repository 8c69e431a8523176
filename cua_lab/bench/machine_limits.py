"""What the machine itself can do, measured in the same run: a figure means little without it.

Invariant: each limit is the best of its rounds, for a limit is what nothing has disturbed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from PIL import Image

from cua_lab.pictures import png_bytes

SIDE = 1024
COPIED_MIB = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one thread."""

    gflops: float
    """float32 matrix products of 1024 x 1024, 1e9 operations per second."""
    gib_per_s: float
    """Memory read and written by a copy of 256 MiB."""
    loopback_ms: float
    """One byte to another socket of this machine and back."""
    png_ms: float
    """One picture of 1280 x 1200 as PNG at level 1."""


async def limits(*, rounds: int = 5) -> Limits:
    """Measure them; about two seconds."""
    a = torch.ones(SIDE, SIDE)
    source = np.ones(COPIED_MIB * 2**20, np.uint8)
    target = np.empty_like(source)
    noise = np.random.default_rng(0).integers(0, 40, (1200, 1280, 3), np.uint8)
    picture = Image.fromarray(noise)
    return Limits(
        gflops=2 * SIDE**3 / _best(lambda: a @ a, rounds) / 1e9,
        gib_per_s=2 * COPIED_MIB / 1024 / _best(lambda: np.copyto(target, source), rounds),
        loopback_ms=await _round_trip(200) * 1e3,
        png_ms=_best(lambda: png_bytes(picture, compress_level=1), rounds) * 1e3,
    )


def _best(run: Callable[[], Any], rounds: int) -> float:
    run()
    times = []
    for _ in range(rounds):
        began = perf_counter()
        run()
        times.append(perf_counter() - began)
    return min(times)


async def _round_trip(count: int) -> float:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while byte := await reader.read(1):
            writer.write(byte)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        times = []
        for _ in range(count):
            began = perf_counter()
            writer.write(b"x")
            await reader.readexactly(1)
            times.append(perf_counter() - began)
        writer.close()
        await writer.wait_closed()
    return min(times)
