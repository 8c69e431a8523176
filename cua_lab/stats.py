"""Means with standard errors, and rates with intervals.

Invariant: what was not measured is `None`, never 0.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Rate:
    """Hits of so many, with Wilson's 95% interval."""

    hits: int
    count: int
    rate: float | None
    """`None` without samples."""
    low: float | None
    high: float | None


def wilson(hits: int, count: int, z: float = 1.959964) -> Rate:
    """The rate and its interval at z standard errors."""
    if not 0 <= hits <= count:
        raise ValueError(f"{hits} hits of {count} samples is no rate")
    if count == 0:
        return Rate(0, 0, None, None, None)
    share = hits / count
    scale = 1 + z * z / count
    middle = (share + z * z / (2 * count)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return Rate(hits, count, share, max(0.0, middle - half), min(1.0, middle + half))
