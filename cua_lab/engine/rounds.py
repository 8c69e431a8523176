"""Who runs next: requests of slots in rounds, the others as they come.

A slot is one episode's seat at the engine. A slot's request waits until every open slot has one
waiting; then the round goes out as a whole, in slot order. So a batch depends on what the episodes
do, not on when their requests happen to arrive, and a run repeats to the last bit.

Invariant: a slot has at most one request waiting, and an abandoned request never holds up a round:
its slot counts as absent until it asks again.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cua_lab.errors import LabError

Job = TypeVar("Job", bound=Hashable)


@dataclass(slots=True)
class Rounds(Generic[Job]):
    """Requests that have not started; not thread-safe, its owner holds a lock."""

    _present: dict[int, bool] = field(default_factory=dict)
    """Open slots; False while absent."""
    _waiting: dict[int, Job] = field(default_factory=dict)
    _free: list[Job] = field(default_factory=list)

    @property
    def open_slots(self) -> tuple[int, ...]:
        """The open slots in order."""
        return tuple(sorted(self._present))

    def open(self, count: int) -> tuple[int, ...]:
        """Open `count` more slots, the lowest numbers that are free."""
        if count < 1:
            raise LabError(f"got {count} slots to open; open at least 1")
        free = (slot for slot in range(len(self._present) + count) if slot not in self._present)
        slots = tuple(next(free) for _ in range(count))
        self._present.update(dict.fromkeys(slots, True))
        return slots

    def close(self, slot: int) -> None:
        """A slot that will ask no more; a request it still has waiting goes with the next round."""
        if slot not in self._present:
            raise LabError(f"slot {slot} is not open; open are {list(self.open_slots)}")
        del self._present[slot]

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
        """The next round in slot order; empty while a slot is still awaited."""
        if any(here and slot not in self._waiting for slot, here in self._present.items()):
            return []
        jobs = [self._waiting[slot] for slot in sorted(self._waiting)]
        self._waiting.clear()
        return jobs

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
