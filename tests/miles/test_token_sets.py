"""What ends an answer and what no answer holds: as the policy room has it, without the weights."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cua_lab.errors import LabError
from cua_lab.miles.token_sets import forbidden_ids, stop_ids
from cua_lab.policy.policy import Policy
from cua_lab.stitching.codec import QWEN_CONTROL

QWEN = {name: token for token, name in QWEN_CONTROL.items()}


def tokenizer(vocabulary: dict[str, int]) -> Any:
    return SimpleNamespace(get_vocab=lambda: vocabulary, eos_token_id=QWEN["<|im_end|>"])


def test_both_ends_of_qwen_stop_an_answer(tmp_path: Path) -> None:
    """A good call that ends exactly at the limit with <|endoftext|> counted as cut."""
    assert stop_ids(tmp_path, tokenizer(QWEN)) == {151643, 151645}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [151645, 7]}')
    assert stop_ids(tmp_path, tokenizer(QWEN)) == {151643, 151645, 7}


def test_rows_that_no_token_owns_are_forbidden(tmp_path: Path) -> None:
    """Qwen3-VL pads its vocabulary; a real recording has 151709."""
    config = {"model_type": "qwen3_vl", "text_config": {"vocab_size": 151936}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    vocabulary = {str(i): i for i in range(151643)} | QWEN
    vocabulary |= {f"<added {i}>": i for i in range(151657, 151669)}
    found = forbidden_ids(tmp_path, tokenizer(vocabulary))
    assert {151655, 151669, 151709, 151935} <= set(found)
    assert not {0, 151643, 151645, 151657} & set(found)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(LabError, match="names no vocab_size"):
        forbidden_ids(tmp_path, tokenizer(vocabulary))


def test_the_sets_are_those_of_the_policy(checkpoint: Path, warm_policy: Policy) -> None:
    assert forbidden_ids(checkpoint, warm_policy.tokenizer) == warm_policy.forbidden_ids
    assert stop_ids(checkpoint, warm_policy.tokenizer) >= set(warm_policy.stop_ids)
