"""How large a small Qwen3-VL is and how its weights start: numbers only, and no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cua_lab.ranges import Count, NonNegative, Range


@dataclass(frozen=True, slots=True)
class Shape:
    """The network without its vocabulary, which comes from the tokenizer."""

    hidden: Count = 96
    layers: Count = 3
    heads: Count = 4
    """Of the text model, the vision tower has four; vLLM on a CPU needs hidden / heads of at least
    32."""
    vision_hidden: Count = 64
    vision_depth: Count = 2
    grid_side: Count = 8
    """Side of the learned grid of vision positions: screen pixels / 16."""
    init_std: Annotated[float, Range(1e-3, 1)] = 0.08
    patch_std: Annotated[float, Range(1e-3, 1)] = 0.01
    """How loud pixels are at first: pages of white, grey and thin lines differ from each other a
    third as much as screens with red buttons, and want 0.05."""
    position_std: NonNegative = 0.5
    """Strong vision positions from the start are what lets clicks find their place."""
    mlp_ratio: Count = 4
    deepstack: tuple[int, ...] = (0,)
    """Vision blocks whose features join the first text layers."""
    rope_theta: Annotated[float, Range(1)] = 100.0
    """Episodes are short: Qwen's 5e6 leaves most rotary pairs still over 200 tokens."""
