"""The real browser, measured: settling, stale frames, latency, throughput, the screenshot path.

Every row is measured through the computer tool, as a policy would act. A frame is stale when it
does not show what its action has led to. Invariant: what a frame has to show follows from the
number of actions alone, so that no frame is judged by another frame.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from hud.capabilities import Capability, RFBClient
from PIL import Image

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.screen import Screen
from cua_lab.computer.settling import FixedSleep, QuietFramebuffer, Settle
from cua_lab.computer.tool import ComputerTool
from cua_lab.desktop.chromium import ChromiumDesktop
from cua_lab.desktop.pool import DesktopPool
from cua_lab.pictures import png_bytes, read_base64, read_rgb

# Each key moves a bar to the next of eight places: a frame half way is stale.
PAGE = """data:text/html,<!doctype html><style>body{margin:0;overflow:hidden;background:white}
%23bar{position:absolute;top:0;left:0;width:40px;height:100vh;background:rgb(255,0,0);
transition:left MOVINGms ease-in-out}</style><div id=bar></div><script>let n=0;
addEventListener('keydown',()=>{n=(n+1)&7;bar.style.left=n*80+'px'})</script>"""
AT_REST = "Promise.all(document.getAnimations().map(a => a.finished)).then(() => 0)"
MOVING_MS = 250
STATIC = "data:text/html,<!doctype html><h1>Nothing moves</h1>"
PLACE = 80
"""Pixels between two places of the bar."""


@dataclass(frozen=True, slots=True)
class Settled:
    """One way to settle, on the animated page."""

    name: str
    each_ms: tuple[float, ...]
    """Of each action: send, settle, screenshot."""
    each_stale: tuple[bool, ...]
    """Whether its frame was."""

    @property
    def actions(self) -> int:
        return len(self.each_ms)

    @property
    def stale(self) -> int:
        return sum(self.each_stale)

    @property
    def ms(self) -> float:
        """Median of an action."""
        return median(self.each_ms)


@dataclass(frozen=True, slots=True)
class Paths:
    """From a VNC frame of 1280x1200 to the PNG of 512 pixels that the model sees, ms."""

    ours_ms: tuple[float, ...]
    hud_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Together:
    """Several desktops at once."""

    desktops: int
    boot_s: float
    actions_per_s: float
    latency_ms: float
    """Median of one action on a static page, all desktops acting."""


async def _tool(desktop: ChromiumDesktop, **config: Any) -> ComputerTool:
    client = await Screen.connect(Capability.rfb(url=desktop.url))
    return ComputerTool(client=client, config=ToolConfig(**config))


async def settled(
    desktop: ChromiumDesktop,
    name: str,
    settle: Settle,
    *,
    actions: int = 50,
    moving_ms: int = MOVING_MS,
) -> Settled:
    """Press a key, look, and see whether the bar is where it comes to rest, `moving_ms` later."""
    await desktop.show(PAGE.replace("MOVING", str(moving_ms)))
    tool = await _tool(desktop, settle=settle)
    await tool.execute({"action": "screenshot"})
    times, stale = [], []
    for index in range(actions):
        began = time.perf_counter()
        result = await tool.execute({"action": "press", "keys": ["x"]})
        times.append(time.perf_counter() - began)
        left = (index + 1) % 8 * PLACE
        row = _pixels(result)[desktop.size[1] // 2]
        shown = np.flatnonzero((row == (255, 0, 0)).all(axis=1))
        stale.append(shown.tolist() != list(range(left, left + 40)))
        await desktop.evaluate(AT_REST)  # the next action starts there, however bad this frame was
        await desktop.drawn()
    await tool.client.close()
    return Settled(name, tuple(s * 1000 for s in times), tuple(stale))


async def settling(*, actions: int = 50, moving_ms: int = MOVING_MS) -> list[Settled]:
    """Quiet framebuffer beside fixed sleeps; a page that moves for 0 ms jumps at once."""
    ways: Sequence[tuple[str, Settle]] = (
        ("quiet framebuffer", QuietFramebuffer()),
        ("sleep 100 ms", FixedSleep(100)),
        ("sleep 300 ms", FixedSleep(300)),
    )
    async with ChromiumDesktop(640, 600) as desktop:
        return [
            await settled(desktop, name, way, actions=actions, moving_ms=moving_ms)
            for name, way in ways
        ]


async def screenshot_paths(*, repeats: int = 15) -> Paths:
    """The tool beside HUD's PNG that is then scaled down with LANCZOS."""
    async with ChromiumDesktop(1280, 1200) as desktop:
        await desktop.show("data:text/html,<body style='font:20px sans-serif'>" + "text " * 3000)
        tool = await _tool(desktop, screenshot_width=512)
        hud = await RFBClient.connect(Capability.rfb(url=desktop.url))
        ours, theirs = [], []
        for _ in range(repeats):
            began = time.perf_counter()
            await tool.screenshot()
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            png, _ = await hud.screenshot_png()
            downscaled(png, 512)
            theirs.append(time.perf_counter() - began)
        await tool.client.close()
        await hud.close()
    return Paths(tuple(s * 1000 for s in ours), tuple(s * 1000 for s in theirs))


def downscaled(png: bytes, width: int) -> bytes:
    """A screenshot as HUD's users scale it: decoded, LANCZOS, encoded."""
    image = read_rgb(png)
    size = (width, round(image.height * width / image.width))
    return png_bytes(image.resize(size, Image.Resampling.LANCZOS), compress_level=6)


async def together(count: int = 4, *, actions: int = 40) -> Together:
    """Desktops that act at the same time, each as fast as it can, on a page that does not react."""
    began = time.perf_counter()
    async with DesktopPool(count, 640, 600) as pool:
        boot_s = time.perf_counter() - began
        times: list[float] = []

        async def act() -> None:
            async with pool.lend() as desktop:
                await desktop.show(STATIC)
                tool = await _tool(desktop, settle=QuietFramebuffer())
                await tool.execute({"action": "screenshot"})
                for _ in range(actions):
                    start = time.perf_counter()
                    await tool.execute({"action": "press", "keys": ["f13"]})
                    times.append(time.perf_counter() - start)
                await tool.client.close()

        start = time.perf_counter()
        await asyncio.gather(*(act() for _ in range(count)))
        seconds = time.perf_counter() - start
    return Together(count, boot_s, len(times) / seconds, median(times) * 1000)


def _pixels(result: Any) -> np.ndarray:
    return np.asarray(read_rgb(read_base64(result.content[-1].data)))
