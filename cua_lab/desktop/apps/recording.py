"""An app that is listened to: it behaves as the app inside and remembers every event.

Invariant: `events` holds what reached the app, in order, and nothing that was refused before.
"""

from __future__ import annotations

from typing import Any

from PIL import Image

from cua_lab.desktop.app import App

KeyEvent = tuple[str, int]
"""("down" | "up", keysym)"""


class RecordingApp:
    """Wraps any app; see the module."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.size = app.size
        self.keys: list[KeyEvent] = []
        self.points: list[tuple[int, int, int]] = []
        """(x, y, buttons held)"""

    def reset(self, seed: int) -> None:
        self.app.reset(seed)
        self.keys.clear()
        self.points.clear()

    def draw(self) -> Image.Image:
        return self.app.draw()

    def key(self, keysym: int, down: bool) -> None:
        self.keys.append(("down" if down else "up", keysym))
        self.app.key(keysym, down)

    def pointer(self, x: int, y: int, buttons: int) -> None:
        self.points.append((x, y, buttons))
        self.app.pointer(x, y, buttons)

    def state(self) -> dict[str, Any]:
        return self.app.state()
