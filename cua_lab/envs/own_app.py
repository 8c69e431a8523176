"""An env of one's own on the embedded desktop: `cua-lab new NAME` writes one on top of this.

    templates (async generators) -> AppEnvironment -> the same desk, frames and grades as the lab's

A template puts an app on the screen with `playing`, yields `start(prompt, turns)`, and at the end
`graded(Grade(reward, success), state)`. Invariant: a reward comes from the app's state alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from cua_lab.desktop.app import App
from cua_lab.envs.lab.app_screen import AppScreen
from cua_lab.envs.lab.env import graded, start
from cua_lab.envs.lab.grading import Grade, read
from cua_lab.envs.screen_env import Episode, ScreenEnvironment, Template

__all__ = ["AppEnvironment", "Episode", "Grade", "graded", "read", "start"]


class AppEnvironment(ScreenEnvironment[AppScreen]):
    """A HUD env with one screen, on which each episode puts an app."""

    def __init__(self, name: str, templates: Mapping[str, Template]) -> None:
        """`templates` by id; each one's docstring is its description."""
        super().__init__(name, AppScreen(), templates)

    def playing(self, app: App) -> contextlib.AbstractContextManager[None]:
        """Show an app for the length of an episode."""
        return self._desk.playing(app)
