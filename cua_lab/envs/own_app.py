"""An env of one's own on the embedded desktop: `cua-lab new NAME` writes one on top of this.

    templates (async generators) -> AppEnvironment -> the same desk, frames and grades as the lab's

A template puts an app on the screen with `playing`, yields `start(prompt, turns)`, and at the end
`graded(Grade(reward, success), state)`. Invariant: a reward comes from the app's state alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from hud.environment import Environment

from cua_lab import __version__
from cua_lab.desktop.app import App
from cua_lab.envs.lab.app_screen import AppScreen
from cua_lab.envs.lab.env import Episode, graded, start
from cua_lab.envs.lab.grading import Grade, read

__all__ = ["AppEnvironment", "Episode", "Grade", "graded", "read", "start"]

Template = Callable[..., Episode]


class AppEnvironment(Environment):
    """A HUD env with one screen, on which each episode puts an app."""

    def __init__(self, name: str, templates: Mapping[str, Template]) -> None:
        """`templates` by id; each one's docstring is its description."""
        super().__init__(name, version=__version__)
        self._desk = AppScreen()
        self.initialize(self._open)
        self.shutdown(self._desk.close)
        for id, template in templates.items():
            self.template(id=id, description=template.__doc__ or "")(template)

    async def _open(self) -> None:
        self.add_capability(await self._desk.open())

    def playing(self, app: App) -> contextlib.AbstractContextManager[None]:
        """Show an app for the length of an episode."""
        return self._desk.playing(app)
