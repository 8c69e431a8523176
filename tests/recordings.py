"""Recorded answers of real inference servers (random tiny models; images cut, most top-k too)."""

import json
from pathlib import Path
from typing import Any

from cua_lab.serving.recordings import SGLANG, VLLM, recorded

FOLDER = Path(__file__).parent / "fixtures" / "engines"
SGLANG_BF16 = "sglang-0.5.23-qwen3vl"
__all__ = ["SGLANG", "SGLANG_BF16", "VLLM", "as_sglang", "recording"]


def recording(engine: str, name: str) -> Any:
    """One recorded exchange, or a list of them; those that a lesson reads come with the package."""
    path = FOLDER / engine / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    return recorded(engine, name)


def as_sglang(response: dict[str, Any], version: str) -> dict[str, Any]:
    """The answer an older sglang gives to the same request."""
    for choice in response["choices"]:
        ids = choice.pop("response_token_ids")
        if version == "0.5.17":
            choice["token_ids"] = ids
    return response
