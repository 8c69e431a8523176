"""Numbers with their allowed range, for the fields of settings.

Invariant: nothing is imported from the package, so every file of settings can.
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
