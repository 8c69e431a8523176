"""Ending a run from inside Miles' rollout.

Miles' default rollout logs every `Exception` of a generate task and asks for another group in its
place, so a fault that every episode has is played again forever: a dead router gave 1,614 episodes
in 75 s, a refused `top_p` 25,248 calls in 20 s. What is not an `Exception` goes through its loop,
through asyncio and through Ray (2.60: the driver gets a `RayTaskError` with the text) and ends the
job at once.

Invariant: nothing that the plug-in raises into that loop is an `Exception`. What may fail, one
episode, is a failed sample and is not raised at all.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from cua_lab.errors import LabError
from cua_lab.miles.secrets import redacted

logger = logging.getLogger("cua_lab.miles")
P = ParamSpec("P")
T = TypeVar("T")


class RunEnds(BaseException):
    """The set-up is at fault, not the policy; not an `Exception`, so that Miles does not go on."""


def ends_the_run(call: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Whatever `Exception` the call raises becomes a `RunEnds` with its text, logged once."""

    @functools.wraps(call)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await call(*args, **kwargs)
        except Exception as error:
            text = redacted(reason_of(error))
            logger.critical("the run ends: %s", text)
            # The cause is pickled on its way to the driver, with any key that it quotes.
            raise RunEnds(text) from (error if text == reason_of(error) else None)

    return guarded


def reason_of(error: Exception) -> str:
    """A mistake in its own words; anything else with its type, which may be all that it says."""
    return str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
