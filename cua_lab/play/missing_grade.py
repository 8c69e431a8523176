"""A task that ends without a grade is a fault, not a reward of 0.

HUD's `TaskRunner.grade` answers 0.0 where a template's generator ends after its prompt (hud
0.6.21, `environment/server.py`): on the wire that cannot be told from a task that was graded 0.0.
Invariant: with `refuse_missing_grades` in force, an env of this process raises there instead, and
the episode fails with the reason. An env in a process or container of its own runs HUD's code.
"""

from typing import Any


class _Graded:
    """A task's generator that must yield a grade."""

    def __init__(self, generator: Any, task: str) -> None:
        self._generator, self._task = generator, task

    async def asend(self, value: Any) -> Any:
        try:
            return await self._generator.asend(value)
        except StopAsyncIteration:
            raise RuntimeError(
                f"task {self._task!r} ended without a grade; yield a number or a dict with a"
                " 'score' after the prompt"
            ) from None

    async def aclose(self) -> None:
        await self._generator.aclose()


def refuse_missing_grades() -> None:
    """Let every env of this process raise where its task yields no grade. Idempotent."""
    from hud.environment.server import TaskRunner

    grade = TaskRunner.grade
    if getattr(grade, "refuses_missing", False):
        return

    async def graded(self: Any, payload: dict[str, Any]) -> dict[str, Any]:
        if self._gen is not None:
            self._gen = _Graded(self._gen, self.task.id)
        return await grade(self, payload)

    graded.refuses_missing = True  # type: ignore[attr-defined]
    TaskRunner.grade = graded  # type: ignore[method-assign]
