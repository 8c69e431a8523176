"""Grounding measured: how often a predicted click lands inside the target's box.

    samples with boxes ──predict──▶ a point in 0-1, or None ──▶ hit or miss ──▶ rates with intervals

Rates come overall and by difficulty, by size of the target and by its type, each with Wilson's 95%
interval, which stays inside 0..1 and honest for few samples.

Invariant: a sample without a box is counted as `unmeasured` and enters no rate; a prediction that
is no point is a miss and counted as `invalid` as well.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from cua_lab.dataset.difficulty import LEVELS, grade, sample_area
from cua_lab.dataset.grounding import GroundingSample
from cua_lab.dataset.spaces import Point, contains
from cua_lab.stats import Rate, wilson

Predict = Callable[[GroundingSample], Point | None]
"""The click as fractions of width and height; `None` where there was no valid call."""
SIZES = (("large, 1% and more", 0.01), ("medium, 0.1% to 1%", 0.001), ("small, below 0.1%", 0.0))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One sample measured."""

    id: str | None
    screenshot: str
    instruction: str
    predicted: Point | None
    hit: bool
    difficulty: str
    size: str
    type: str


@dataclass(frozen=True, slots=True)
class GroundingReport:
    """What an evaluation found."""

    overall: Rate
    by_difficulty: dict[str, Rate]
    by_size: dict[str, Rate]
    by_type: dict[str, Rate]
    invalid: int
    """Predictions that were no point; they are misses too."""
    unmeasured: int
    """Samples without a box or a point to find; in no rate."""
    median_distance: float | None
    """From predicted point to the box's centre, in screen widths and heights; of valid ones."""
    outcomes: tuple[Outcome, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record, one entry a sample included."""
        return asdict(self)


def evaluate_grounding(
    samples: Iterable[GroundingSample], predict: Predict, *, progress: bool = False
) -> GroundingReport:
    """Ask for a click on every sample that has a box, and count."""
    from tqdm import tqdm

    outcomes: list[Outcome] = []
    distances: list[float] = []
    unmeasured = 0
    for sample in tqdm(samples, desc="evaluate", disable=not progress):
        box = sample.box_unit
        if box is None:
            unmeasured += 1
            continue
        point = _valid(predict(sample))
        if point is not None:
            centre = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
            distances.append(math.dist(point, centre))
        hit = point is not None and contains(box, point)
        outcomes.append(_outcome(sample, point, hit))
    return GroundingReport(
        overall=_rate(outcomes),
        by_difficulty=_by(outcomes, "difficulty", LEVELS),
        by_size=_by(outcomes, "size", [name for name, _ in SIZES]),
        by_type=_by(outcomes, "type", sorted({outcome.type for outcome in outcomes})),
        invalid=sum(outcome.predicted is None for outcome in outcomes),
        unmeasured=unmeasured,
        median_distance=sorted(distances)[len(distances) // 2] if distances else None,
        outcomes=tuple(outcomes),
    )


def _valid(point: Point | None) -> Point | None:
    """A prediction beyond the screen is a miss like any other; one that is no number is invalid."""
    if point is None or not all(math.isfinite(value) for value in point):
        return None
    return point


def _outcome(sample: GroundingSample, point: Point | None, hit: bool) -> Outcome:
    area = sample_area(sample) or 0.0
    return Outcome(
        id=sample.id,
        screenshot=sample.screenshot,
        instruction=sample.instruction,
        predicted=point,
        hit=hit,
        difficulty=grade(sample).level,
        size=next(name for name, least in SIZES if area >= least),
        type=sample.target_type or "unknown",
    )


def _rate(outcomes: Iterable[Outcome]) -> Rate:
    hits = [outcome.hit for outcome in outcomes]
    return wilson(sum(hits), len(hits))


def _by(outcomes: Iterable[Outcome], field: str, order: Iterable[str]) -> dict[str, Rate]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[getattr(outcome, field)].append(outcome)
    return {name: _rate(groups[name]) for name in order if groups[name]}
