"""The lab's byte-level BPE."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cua_lab.policy.policy import Policy
from cua_lab.policy.template import encode, render
from cua_lab.policy.tokenizer import CALL_TOKENS, SPECIAL_TOKENS, Corpus, train_tokenizer
from tests.support_calls import call_text

from .conftest import SYSTEM, TOOL


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_text_survives_the_round_trip(policy: Policy, text: str) -> None:
    assert policy.tokenizer.decode(encode(policy.tokenizer, text)) == text


def test_the_same_corpus_gives_the_same_ids(corpus: Corpus) -> None:
    first, second = train_tokenizer(corpus), train_tokenizer(corpus)
    assert first.get_vocab() == second.get_vocab()


def test_system_prompt_with_tools_is_a_handful_of_tokens(policy: Policy) -> None:
    """Qwen's own word splitting takes 180 for it; each would be prefilled and trained through."""
    messages = [{"role": "system", "content": SYSTEM}]
    prompt = render(policy.tokenizer, messages, [TOOL], add_generation_prompt=False)
    assert len(prompt) == 4


def test_every_decision_of_a_call_is_one_token(policy: Policy) -> None:
    ids = encode(policy.tokenizer, call_text("computer", {"action": "press", "keys": ["up"] * 3}))
    pieces = [policy.tokenizer.decode([token]) for token in ids]
    head = '\n{"name": "computer", "arguments": {"action": "press", "keys": ["'
    keys = ["up", '", "', "up", '", "', "up"]
    assert pieces == ["<tool_call>", head, *keys, '"]}}\n', "</tool_call>"]
    ids = encode(policy.tokenizer, '"x": 435, "y"')
    assert [policy.tokenizer.decode([i]) for i in ids][2:5] == ["4", "3", "5"]


def test_calls_survive_skip_special_tokens_and_specials_do_not(policy: Policy) -> None:
    """`<tool_call>` registered as special vanishes, and no parser finds a call."""
    text = "<tool_call>\n{}\n</tool_call><|im_end|>"
    ids = encode(policy.tokenizer, text)
    assert policy.tokenizer.decode(ids, skip_special_tokens=True) == "<tool_call>\n{}\n</tool_call>"
    for token in (*SPECIAL_TOKENS, *CALL_TOKENS):
        assert len(encode(policy.tokenizer, token)) == 1


def test_end_and_padding_are_qwens(policy: Policy) -> None:
    assert policy.tokenizer.eos_token == "<|im_end|>"
    assert policy.tokenizer.pad_token == "<|endoftext|>"


def test_the_generation_prompt_never_melts_into_what_is_said_next() -> None:
    """A rollout's prompt ends with it: `assistant\\nx` as one id would be trained and never met."""
    said = [f"<|im_start|>assistant\n{first}000 rest<|im_end|>" for first in "xyzxyzxyz"]
    tokenizer = train_tokenizer(Corpus(tuple(said)))
    opening = tokenizer("<|im_start|>assistant\n")["input_ids"]
    for text in said:
        assert tokenizer(text)["input_ids"][: len(opening)] == opening
