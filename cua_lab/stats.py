"""Means with standard errors. Invariant: what was not measured is `None`, never 0."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over episodes."""

    mean: float
    se: float
    """Standard error of the mean: sample standard deviation / sqrt(n); NaN for one episode."""
    n: int


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """The mean of what was measured; `None` where nothing was."""
    known = [float(value) for value in values if value is not None]
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    if len(known) == 1:
        return Estimate(mean, math.nan, 1)
    variance = math.fsum((value - mean) ** 2 for value in known) / (len(known) - 1)
    return Estimate(mean, math.sqrt(variance / len(known)), len(known))
