"""Encoding by pieces gives the tokenizer's own ids."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cua_lab.policy.pieces import Pieces, pieces_of
from cua_lab.policy.policy import Policy
from cua_lab.policy.template import encode


def whole(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


marks = st.sampled_from(
    ["<|im_start|>", "<|im_end|>\n", "<tool_call>", "\n</tool_call>", "<|image_pad|>", "<|im_", " "]
)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(parts=st.lists(st.one_of(marks, words), max_size=12))
@settings(max_examples=150, deadline=None)
def test_pieces_in_a_row_are_the_whole_text(policy: Policy, parts: list[str]) -> None:
    text = "".join(parts)
    for _ in range(2):  # the second time from memory
        assert encode(policy.tokenizer, text) == whole(policy.tokenizer, text)


def test_a_piece_is_encoded_once(policy: Policy) -> None:
    asked: list[str] = []

    class Counting:
        added_tokens_decoder = policy.tokenizer.added_tokens_decoder

        def __len__(self) -> int:
            return len(policy.tokenizer)

        def __call__(self, text: str, **options: Any) -> Any:
            asked.append(text)
            return policy.tokenizer(text, **options)

    pieces = Pieces(Counting())
    for number in range(3):
        text = f"<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n{number}<|im_end|>"
        assert pieces.encode(text) == whole(policy.tokenizer, text)
    assert asked.count("user\nGo.") == 1
    assert sorted(a for a in asked if "assistant" in a) == [f"assistant\n{n}" for n in range(3)]


def test_an_added_token_that_takes_blanks_with_it_is_never_cut_at() -> None:
    """`lstrip` swallows the blank before it: encoded apart, that blank would be a token."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.train_from_iterator(["a b c a b c"], trainers.BpeTrainer(show_progress=False))
    core.add_tokens([AddedToken("<x>", lstrip=True)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core)
    assert encode(tokenizer, "a  <x>b") == whole(tokenizer, "a  <x>b")


def test_tokens_that_are_added_later_are_known(policy: Policy) -> None:
    import copy

    tokenizer = copy.deepcopy(policy.tokenizer)
    before = pieces_of(tokenizer)
    assert pieces_of(tokenizer) is before
    tokenizer.add_tokens(["<new>"])
    assert encode(tokenizer, "a<new>b") == whole(tokenizer, "a<new>b")


@pytest.mark.parametrize("text", ["", "plain", "<|im_end|>"])
def test_the_smallest_texts(policy: Policy, text: str) -> None:
    assert encode(policy.tokenizer, text) == whole(policy.tokenizer, text)
