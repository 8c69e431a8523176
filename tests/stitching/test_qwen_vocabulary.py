"""Qwen's ids by hand equal those of a tokenizer that others wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.errors import LabError
from cua_lab.stitching import qwen_vocabulary as qwen
from cua_lab.stitching.qwen_vocabulary import qwen_codec, qwen_ids
from tests.stitching.codecs import encode

TEXTS = st.text(st.sampled_from(list("aehlopt PT.,!?{}\"':\n\t0127éÅ漢字😀'sre")), max_size=60)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Click it.\n\n<tool_call>", (2612, 432, 382, 151657)),
        ("Click it.\n<tool_call>", (2612, 432, 624, 151657)),
        ("hello", (14990,)),
        ("a b", (64, 293)),
        ("<|im_end|>\n<|im_start|>user", (151645, 198, 151644, 872)),
    ],
)
def test_known_splits_come_out(text: str, ids: tuple[int, ...]) -> None:
    """As reported by rllm#272, trl#5224, verl#6501 and tinker-cookbook#859."""
    assert qwen_ids(text) == ids


@given(TEXTS)
def test_any_text_splits_as_tiktoken_splits_it(text: str) -> None:
    assert qwen_ids(text) == encode(text)


@given(st.text(max_size=40))
def test_ids_hold_the_bytes_of_their_text(text: str) -> None:
    codec = qwen_codec()
    assert b"".join(map(codec.token_bytes, qwen_ids(text))) == text.encode()


def test_without_the_ranks_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qwen.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LabError, match="dashscope"):
        qwen.ranks_file()
