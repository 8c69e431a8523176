"""Lanes: the parts of one update, computed side by side, a thread each.

    batch ──▶ part 1 ──▶ gradient ─┐
              part 2 ──▶ gradient ─┴─▶ sum, in the order of the parts ──▶ update

torch lets go of Python's lock inside its operations, so two lanes keep two cores busy; where only
one is free they take turns and cost nothing. Invariant: what is computed depends on how the work
was cut, never on how many cores there were or which lane was quicker, so a run gives the same bits
on an idle machine and on a busy one. (`run.threads`, more of them in one operation, gives others.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


class Lanes:
    """`count` threads, this one among them."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._pool = (
            ThreadPoolExecutor(count - 1, "lane", torch.set_num_threads, (torch.get_num_threads(),))
            if count > 1
            else None
        )

    def run(self, work: Sequence[Callable[[], T]]) -> list[T]:
        """Do all of it and return the results in order; an error is raised when no lane works."""
        if self._pool is None or len(work) < 2:
            return [one() for one in work]
        others = [self._pool.submit(one) for one in work[1:]]
        try:
            first = work[0]()
        finally:
            wait(others)
        return [first, *(other.result() for other in others)]


class Gradient:
    """A gradient that a lane adds up by itself: `backward` of two lanes would race for `.grad`."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self.parts: list[Tensor | None] = [None] * len(parameters)

    def add(self, loss: Tensor) -> None:
        """Add the gradient of `loss`."""
        found = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        for index, (own, new) in enumerate(zip(self.parts, found, strict=True)):
            if own is None:
                self.parts[index] = new
            elif new is not None:
                self.parts[index] = own + new


def set_gradients(parameters: Sequence[nn.Parameter], lanes: Iterable[Gradient]) -> None:
    """Make the sum of the lanes' gradients, in their order, the parameters' `.grad`."""
    columns = zip(*(lane.parts for lane in lanes), strict=True)
    for parameter, parts in zip(parameters, columns, strict=True):
        there = [part for part in parts if part is not None]
        parameter.grad = sum(there[1:], start=there[0]) if there else None
