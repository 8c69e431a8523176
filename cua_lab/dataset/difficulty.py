"""How hard a sample is, with the reasons, and in which order a policy meets samples.

Five features give 0, 1 or 2 points each; a feature that a sample does not have gives none and is
not mentioned. Up to 1 point is easy, up to 3 medium, more is hard.

| feature                                          | 1 point from | 2 points from |
|--------------------------------------------------|--------------|---------------|
| target size: share of the screen                 | below 1%     | below 0.1%    |
| look-alikes: elements one may take for the target | 1            | 5             |
| distance of the target from the centre (0..1)    | 0.5          | 0.8           |
| steps of the task                                | 2            | 6             |
| characters of the instruction                    | 60           | 150           |

Invariant: grading is a pure function of the sample; the order of a curriculum of it and a seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cua_lab.dataset.grounding import GroundingSample
from cua_lab.dataset.instructions import normalise
from cua_lab.dataset.omniparser import Element, smallest_at
from cua_lab.errors import LabError

Level = Literal["easy", "medium", "hard"]
LEVELS: tuple[Level, ...] = ("easy", "medium", "hard")


@dataclass(frozen=True, slots=True)
class Grade:
    """A level and why."""

    level: Level
    points: int
    reasons: tuple[str, ...]
    """One for each feature that made it harder; empty for the easiest samples."""


def grade(sample: GroundingSample) -> Grade:
    """How hard one sample is."""
    found = [
        _from(
            sample_area(sample), (0.01, 0.001), "the target covers {:.2%} of the screen", down=True
        ),
        _from(look_alikes(sample), (1, 5), "{:.0f} elements look like the target"),
        _from(
            distance(sample), (0.5, 0.8), "the target is {:.0%} of the way from centre to corner"
        ),
        _from(sample.steps, (2, 6), "the task takes {:.0f} steps"),
        _from(len(sample.instruction), (60, 150), "the instruction has {:.0f} characters"),
    ]
    points = sum(score for score, _ in found)
    level: Level = "easy" if points <= 1 else "medium" if points <= 3 else "hard"
    return Grade(level, points, tuple(reason for score, reason in found if score))


def _from(
    value: float | None, limits: tuple[float, float], words: str, *, down: bool = False
) -> tuple[int, str]:
    if value is None:
        return 0, ""
    score = sum(value < limit if down else value >= limit for limit in limits)
    return score, words.format(value)


def sample_area(sample: GroundingSample) -> float | None:
    """Share of the screen that the target covers: its box, else the element under the point."""
    box = sample.box_unit
    if box is None:
        element = target_element(sample)
        box = None if element is None else element.bbox
    return None if box is None else (box[2] - box[0]) * (box[3] - box[1])


def target_element(sample: GroundingSample) -> Element | None:
    """The element the sample is about."""
    point = sample.point_unit
    return None if point is None else smallest_at(sample.elements, point)


def look_alikes(sample: GroundingSample) -> int | None:
    """Other elements of the target's type with its words, or with both sides within 25%."""
    target = target_element(sample)
    if target is None:
        return None
    others = [element for element in sample.elements if element is not target]
    return sum(element.type == target.type and _alike(element, target) for element in others)


def _alike(one: Element, other: Element) -> bool:
    if one.content and other.content and normalise(one.content) == normalise(other.content):
        return True
    sides = [
        (element.bbox[2] - element.bbox[0], element.bbox[3] - element.bbox[1])
        for element in (one, other)
    ]
    return all(abs(a - b) <= 0.25 * max(a, b) for a, b in zip(*sides, strict=True))


def distance(sample: GroundingSample) -> float | None:
    """From the screen's centre (0) to its corner (1); `None` for actions without a point."""
    point = sample.point_unit
    if point is None:
        return None
    return math.hypot(point[0] - 0.5, point[1] - 0.5) / math.hypot(0.5, 0.5)


@dataclass(frozen=True, slots=True)
class Curriculum:
    """When harder samples join in; progress runs from 0 (first batch) to 1 (last)."""

    medium_from: float = 0.3
    hard_from: float = 0.6
    review: float = 0.2
    """Share of a batch that is drawn from easier levels once a harder one is open, so that what
    was learnt first is not forgotten."""

    def __post_init__(self) -> None:
        if not 0 <= self.medium_from <= self.hard_from <= 1 or not 0 <= self.review <= 1:
            raise LabError(
                "a curriculum has 0 <= medium_from <= hard_from <= 1 and 0 <= review <= 1;"
                f" got {self}"
            )

    def levels(self, progress: float) -> tuple[Level, ...]:
        """The levels that are open; the last one is the one to learn now."""
        return LEVELS[: 1 + (progress >= self.medium_from) + (progress >= self.hard_from)]


def easy_first(samples: Sequence[GroundingSample]) -> list[GroundingSample]:
    """The samples by points; equal ones keep their order."""
    return sorted(samples, key=lambda sample: grade(sample).points)


def curriculum(
    samples: Sequence[GroundingSample],
    plan: Curriculum | None = None,
    *,
    batches: int,
    batch_size: int,
    seed: int,
) -> Iterator[list[GroundingSample]]:
    """Batches from easy to hard. A level without samples is passed over, easier ones first."""
    if not samples or batches < 1 or batch_size < 1:
        raise LabError(
            f"a curriculum needs samples, batches and a batch size; got {len(samples)},"
            f" {batches} and {batch_size}"
        )
    plan = plan or Curriculum()
    by_level: dict[Level, list[GroundingSample]] = {level: [] for level in LEVELS}
    for sample in samples:
        by_level[grade(sample).level].append(sample)
    draw = random.Random(seed)
    for number in range(batches):
        open_levels = plan.levels(number / max(batches - 1, 1))
        pools = [by_level[level] for level in open_levels if by_level[level]]
        pools = pools or [next(pool for pool in by_level.values() if pool)]
        yield [draw.choice(_pool(pools, plan.review, draw)) for _ in range(batch_size)]


def _pool(
    pools: list[list[GroundingSample]], review: float, draw: random.Random
) -> list[GroundingSample]:
    """The newest level, or, for the reviewed share, one of the earlier ones."""
    if len(pools) > 1 and draw.random() < review:
        return draw.choice(pools[:-1])
    return pools[-1]
