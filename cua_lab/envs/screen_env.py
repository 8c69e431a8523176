"""What every env of the lab has: one desk, opened when HUD starts the env, and templates by id.

    HUD starts the env -> desk.open() -> a capability for HUD -> templates ... -> desk.close()

Invariant: the desk is closed whenever the env ends, also where an episode failed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from hud.capabilities import Capability
from hud.environment import Environment
from hud.eval import Task

from cua_lab import __version__

Frame = dict[str, Any]
Episode = AsyncGenerator[Frame, Any]
Template = Callable[..., Episode]


class Desk(Protocol):
    """Where episodes play: `AppScreen` (embedded apps) or `BrowserScreen` (pages in Chromium)."""

    async def open(self) -> Capability:
        """Have a screen; what HUD is to publish."""
        ...

    async def close(self) -> None:
        """Give the screen up."""
        ...


D = TypeVar("D", bound=Desk)


class ScreenEnvironment(Environment, Generic[D]):
    """A HUD env that plays on one desk."""

    def __init__(self, name: str, desk: D, templates: Mapping[str, Template]) -> None:
        """`templates` by id; each one's docstring is its description."""
        super().__init__(name, version=__version__)
        self._desk = desk
        self.initialize(self._open)
        self.shutdown(desk.close)
        for id, template in templates.items():
            self.template(id=id, description=template.__doc__ or "")(template)

    def task_row(self, slug: str, template: str, **args: Any) -> Task:
        """A task of a template with arguments, by its slug: a row of a package's `tasks`."""
        task: Task = self.templates[template](**args)
        task.slug = slug
        return task

    async def _open(self) -> None:
        self.add_capability(await self._desk.open())
