"""Ranges of numbers that settings may have, as annotations: `lr: Rate` is a float from 0 to 0.1.

Invariant: a range is checked where a tree of settings is built from text (`recipes.loader`); code
that builds settings itself is trusted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Range:
    """Allowed numbers, ends included."""

    low: float = -math.inf
    high: float = math.inf

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"of at least {self.low:g}"
        return f"from {self.low:g} to {self.high:g}"


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Share = Annotated[float, Range(0, 1)]
Rate = Annotated[float, Range(0, 0.1)]
NonNegative = Annotated[float, Range(0)]
