"""A HUD v6 env as somebody else would have written it, with the habits of the public browser env.

One screen for the whole process, on a port that is fixed; a single page, full screen, that has no
keyboard focus until it is clicked; moves that are animated after a moment. It knows nothing of
`build`, `tasks.py`, players, seeds or sizes. Its page is drawn here, so that tests need no browser.
"""

import asyncio
import os

from hud.capabilities import Capability
from hud.environment import Environment
from PIL import Image, ImageDraw

from cua_lab.desktop.rfb import RFBServer

PORT = int(os.environ.get("KIOSK_PORT", "5931"))
RIGHT, CELLS, SIDE = 0xFF53, 4, 128
FRAMES, FRAME_S = 6, 0.02


class Page:
    """A disc that steps to the right, frame by frame."""

    size = (SIDE, SIDE)

    def __init__(self) -> None:
        self.cell, self.shown, self.focus = 0, 0.0, False
        self._image: tuple[float, bool, Image.Image] | None = None

    def reset(self, seed: int) -> None:
        self.__init__()

    def draw(self) -> Image.Image:
        if self._image is None or self._image[:2] != (self.shown, self.focus):
            image = Image.new("RGB", self.size, "white")
            x = 8 + self.shown * (SIDE - 40) / (CELLS - 1)
            ImageDraw.Draw(image).ellipse((x, 48, x + 24, 72), fill="red")
            self._image = (self.shown, self.focus, image)
        return self._image[2]

    def key(self, keysym: int, down: bool) -> None:
        if down and self.focus and keysym == RIGHT:
            self.cell = min(CELLS - 1, self.cell + 1)

    def pointer(self, x: int, y: int, buttons: int) -> None:
        self.focus = self.focus or bool(buttons)

    def state(self) -> dict:
        return {"cell": self.cell}


page = Page()
server = RFBServer(page, port=PORT)
env = Environment("kiosk", version="1")
running: list[asyncio.Task] = []


async def animate() -> None:
    while True:
        await asyncio.sleep(FRAME_S)
        if page.shown < page.cell:
            page.shown = min(float(page.cell), page.shown + 1 / FRAMES)
            server.changed()


@env.initialize
async def boot() -> None:
    page.reset(0)
    await server.start()
    running.append(asyncio.create_task(animate()))
    env.add_capability(Capability.rfb(name="screen", url=server.url))


@env.shutdown
async def stop() -> None:
    while running:
        running.pop().cancel()
    await server.close()


@env.template(id="step-right", description="Step to the right.")
async def step_right(cells: int = 1):
    page.reset(0)
    server.changed()
    yield {"prompt": f"Step {cells} to the right with the right arrow key."}
    yield {"score": min(1.0, page.cell / cells)}


@env.template(id="reach", description="Reach a cell.")
async def reach(cell: int):
    page.reset(0)
    yield {"prompt": f"Reach cell {cell}."}
    yield {"score": float(page.cell == cell)}
