"""A batch as transformers' and TRL's users have it: padded on the right, an image for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class PeerBatch:
    """What a peer's loss is given."""

    inputs: Mapping[str, Tensor]
    """What `forward` takes: ids (B, T), mask, pixels, grids, kinds of tokens."""
    trained: Tensor
    """(B, T) bool: tokens with loss."""
    advantages: Tensor
    """(B,); ones for SFT."""


Loss = Callable[[Any, PeerBatch], Tensor]
"""(transformers model, batch) -> scalar."""
