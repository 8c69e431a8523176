"""The processes of one training, and what they tell each other.

    rank 0 ──deal──▶ each rank its share ──work──▶ add_up (gradients) ──▶ gather ──▶ rank 0

Rank 0 plays, records and saves; the others only compute. Objects travel over gloo, gradients over
the device's own backend. Invariant: what one rank finds wrong, all raise (`agree`): nobody waits
for a rank that has given up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor

from cua_lab.errors import LabError

T = TypeVar("T")
PATIENCE = timedelta(days=1)
"""Of a rank for the next order: rank 0 plays episodes meanwhile; one that dies is noticed."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """One process among `count`; alone, every method gives back what it was given."""

    rank: int = 0
    count: int = 1
    local: int = 0
    """Which GPU of its machine is this process's."""
    objects: Any = None
    """The torch.distributed group (gloo) that objects travel over."""

    @property
    def alone(self) -> bool:
        return self.count == 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def deal(self, shares: Sequence[T] | None) -> T:
        """Rank 0 gives one value per rank, the others `None`; each gets its own."""
        if shares is not None and len(shares) != self.count:
            raise ValueError(f"{len(shares)} shares for {self.count} ranks; give one for each")
        if self.alone:
            assert shares is not None
            return shares[0]
        mine: list[Any] = [None]
        given = list(shares) if shares is not None else None
        torch.distributed.scatter_object_list(mine, given, src=0, group=self.objects)
        dealt: T = mine[0]
        return dealt

    def gather(self, value: T) -> list[T]:
        """Every rank's value, by rank, on every rank."""
        if self.alone:
            return [value]
        found: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(found, value, group=self.objects)
        return found

    def agree(self, problem: str | None) -> str | None:
        """The first problem that any rank has; the same answer on every rank."""
        return next((found for found in self.gather(problem) if found is not None), None)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each by its sum over the ranks, in one message a type."""
        if self.alone:
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            same = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in same])
            torch.distributed.all_reduce(flat)
            first = 0
            for tensor in same:
                tensor.copy_(flat[first : first + tensor.numel()].view_as(tensor))
                first += tensor.numel()


ALONE = Ranks()


def launched_ranks() -> int:
    """How many processes `accelerate launch` or `torchrun` started; 1 without them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def join(*, cpu: bool) -> Ranks:
    """Join the processes that `accelerate launch` (or `torchrun`) started; alone without it."""
    if launched_ranks() == 1:
        return ALONE
    try:
        from accelerate import PartialState  # an extra
    except ModuleNotFoundError as error:
        raise LabError(
            f"{launched_ranks()} processes were launched, and training on several needs accelerate:"
            " pip install 'cua-lab[gpu]'"
        ) from error
    state: Any = PartialState(cpu=cpu)
    if state.num_processes != launched_ranks():
        raise LabError(
            f"{launched_ranks()} processes were launched but accelerate sees {state.num_processes};"
            " start them with `accelerate launch --num_processes N -m cua_lab run ...`"
        )
    objects = torch.distributed.new_group(backend="gloo", timeout=PATIENCE)
    return Ranks(state.process_index, state.num_processes, state.local_process_index, objects)


def leave() -> None:
    """End the group of processes, where there is one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
