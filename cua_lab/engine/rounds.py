"""Who runs next: requests of slots in rounds, the others as they come.

A slot is one episode's seat at the engine. A slot's request waits until every open slot has one
waiting; then the round goes out as a whole, in slot order. So a batch depends on what the episodes
do, not on when their requests happen to arrive, and a run repeats to the last bit.

A slot that does not ask within its limit, counted from its last answer, counts as absent until it
asks again: one hung grader of eight would otherwise hold up its siblings until they time out too.
The others' rounds go on without it, in slot order as before; where a limit acts, the batch is
smaller by one, which may move the last bits of a log-probability.

Invariant: a slot has at most one request waiting, and neither an abandoned request nor a slot that
hangs holds up a round for longer than its limit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cua_lab.errors import LabError

Job = TypeVar("Job", bound=Hashable)


@dataclass(slots=True)
class Rounds(Generic[Job]):
    """Requests that have not started; not thread-safe, its owner holds a lock."""

    clock: Callable[[], float] = time.monotonic
    """Seconds; a test has its own."""
    _present: dict[int, bool] = field(default_factory=dict)
    """Open slots; False while absent."""
    _waiting: dict[int, Job] = field(default_factory=dict)
    _free: list[Job] = field(default_factory=list)
    _limits: dict[int, float | None] = field(default_factory=dict)
    """Of each open slot, s; `None` waits as long as it takes."""
    _since: dict[int, float] = field(default_factory=dict)
    """When each open slot was opened or answered last."""
    _running: tuple[int, ...] = ()
    """Slots of the round that was taken last: answered when the next one is asked for."""

    @property
    def open_slots(self) -> tuple[int, ...]:
        """The open slots in order."""
        return tuple(sorted(self._present))

    def open(self, count: int, *, limit_s: float | None = None) -> tuple[int, ...]:
        """Open `count` more slots, the lowest numbers that are free.

        `limit_s`: how long a round waits for each of them between an answer and its next request.
        """
        if count < 1:
            raise LabError(f"got {count} slots to open; open at least 1")
        free = (slot for slot in range(len(self._present) + count) if slot not in self._present)
        slots = tuple(next(free) for _ in range(count))
        self._present.update(dict.fromkeys(slots, True))
        self._limits.update(dict.fromkeys(slots, limit_s))
        self._since.update(dict.fromkeys(slots, self.clock()))
        return slots

    def close(self, slot: int) -> None:
        """A slot that will ask no more; a request it still has waiting goes with the next round."""
        if slot not in self._present:
            raise LabError(f"slot {slot} is not open; open are {list(self.open_slots)}")
        for table in (self._present, self._limits, self._since):
            del table[slot]

    def add(self, job: Job, slot: int | None) -> None:
        """Let a request wait for its round, or for the next batch if it has no slot."""
        if slot is None:
            self._free.append(job)
            return
        if slot not in self._present:
            raise LabError(
                f"the request names slot {slot}, which is not open; open are"
                f" {list(self.open_slots)}"
            )
        if slot in self._waiting:
            raise LabError(
                f"slot {slot} already has a request waiting; a slot asks one thing at a time"
            )
        self._present[slot] = True
        self._waiting[slot] = job

    def abandon(self, job: Job) -> None:
        """Forget a request whose client has gone; its slot is absent until it asks again."""
        if job in self._free:
            self._free.remove(job)
        for slot, waiting in list(self._waiting.items()):
            if waiting is job:
                del self._waiting[slot]
                self.absent(slot)

    def absent(self, slot: int | None) -> None:
        """Do not wait for this slot until it asks again."""
        if slot in self._present:
            self._present[slot] = False

    def take_round(self) -> list[Job]:
        """The next round in slot order; empty while a slot is still awaited.

        Its owner runs a round before it asks for the next, so the slots of the last one have been
        answered by now: their time starts here, however long the round took.
        """
        now = self.clock()
        self._since.update((slot, now) for slot in self._running if slot in self._present)
        self._running = ()
        if not self._waiting:
            return []
        for slot in self._awaited():
            if self._left(slot, now) <= 0:
                self.absent(slot)
        if self._awaited():
            return []
        self._running = tuple(sorted(self._waiting))
        jobs = [self._waiting[slot] for slot in self._running]
        self._waiting.clear()
        return jobs

    @property
    def patience_s(self) -> float | None:
        """How long a round that waits can be held up before a slot's limit is reached; `None`
        where nobody waits, or nobody awaited has a limit."""
        now = self.clock()
        left = [self._left(slot, now) for slot in self._awaited()] if self._waiting else []
        limited = [seconds for seconds in left if seconds != math.inf]
        return max(0.0, min(limited)) if limited else None

    def _awaited(self) -> list[int]:
        """Present slots that have not asked."""
        return [slot for slot, here in self._present.items() if here and slot not in self._waiting]

    def _left(self, slot: int, now: float) -> float:
        limit = self._limits[slot]
        return math.inf if limit is None else self._since[slot] + limit - now

    def told(self) -> str:
        """For whom a round waits, and who has asked."""
        now = self.clock()
        awaited = ", ".join(f"{slot} ({now - self._since[slot]:.0f} s)" for slot in self._awaited())
        return (
            f"the next round has the slots {sorted(self._waiting)} and waits for"
            f" {awaited or 'nobody'}; absent"
            f" {[slot for slot in self.open_slots if not self._present[slot]]}"
        )

    @property
    def has_free(self) -> bool:
        """Whether requests without a slot wait."""
        return bool(self._free)

    def take_free(self) -> list[Job]:
        """All requests without a slot, in order of arrival."""
        jobs, self._free = self._free, []
        return jobs

    def drain(self) -> list[Job]:
        """Everything that waits; none of it will run."""
        jobs = [*self._waiting.values(), *self._free]
        self._waiting.clear()
        self._free = []
        return jobs
