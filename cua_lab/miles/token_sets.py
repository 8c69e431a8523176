"""Ids that mean something to a rollout, from a checkpoint's folder, without its weights.

Invariant: the same sets as `cua_lab.policy.Policy` has for the folder, so that Miles' server and
the embedded engine end and refuse alike.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cua_lab.errors import LabError
from cua_lab.policy.policy import NEVER_SAID
from cua_lab.policy.protocols import Tokenizer
from cua_lab.policy.tokenizer import token_ids

ENDS = ("<|im_end|>", "<|endoftext|>")
"""Qwen's answers end with either."""


def stop_ids(folder: str | Path, tokenizer: Tokenizer) -> frozenset[int]:
    """Ids that end an answer. One that is missing here makes a whole answer, which ends exactly at
    the token limit, count as cut."""
    listed = _json(Path(folder, "generation_config.json")).get("eos_token_id")
    eos = listed if isinstance(listed, list) else [listed]
    known = {*token_ids(tokenizer, ENDS), tokenizer.eos_token_id, *eos}
    return frozenset(token for token in known if isinstance(token, int))


def forbidden_ids(folder: str | Path, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Ids that no answer may hold: image pads and their like, and rows that no token owns.

    Qwen3-VL has 151,936 rows for 151,669 tokens; a recording of a real server has 151709 in it,
    which no text can say and no tokenizer read again.
    """
    config = _json(Path(folder, "config.json"))
    rows = config.get("text_config", config).get("vocab_size") or config.get("vocab_size")
    if not isinstance(rows, int):
        raise LabError(f"{folder}: config.json names no vocab_size; is it a Qwen-VL checkpoint?")
    owned = set(tokenizer.get_vocab().values())
    return tuple(sorted({*token_ids(tokenizer, NEVER_SAID), *(set(range(rows)) - owned)}))


def _json(path: Path) -> dict[str, Any]:
    """The file's object; empty where there is no file."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LabError(f"{path} is not JSON: {error}") from error
    return found if isinstance(found, dict) else {}
