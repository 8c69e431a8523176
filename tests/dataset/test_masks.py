"""Assistant masks: exactly the assistant's tokens, the end token included.

verl#3562, slime#514: without the stop token in the loss answers never end. OpenRLHF#973: the first
token of the answer belongs to it too.
"""

import pytest

from cua_lab.dataset.conversations import to_tool_calls
from cua_lab.dataset.grounding import from_row
from cua_lab.dataset.masks import mask_assistant
from cua_lab.errors import LabError
from cua_lab.policy.template import render
from cua_lab.policy.tokenizer import Corpus, train_tokenizer
from tests.support_calls import call_text

GEMMA_LIKE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content | trim) }}"
    "{{ '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FORGETFUL = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{{ m.content if loop.last else (m.content.split('</think>') | last) }}{{ '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ENDLESS = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"


@pytest.fixture(scope="module")
def tokenizer():
    texts = tuple(call_text("computer", {"action": "click", "x": n, "y": n}) for n in range(9))
    edge = "assistant\n\n\nThere."
    return train_tokenizer(Corpus((*texts, edge, edge, "Click the red button.")))


def conversation() -> list[dict]:
    row = {"screenshot": "a.png", "instruction": "Click the red button.", "action": "click"}
    row |= {"coordinates": [435, 210], "coordinate_space": "0-1000", "thought": "\n\nThere.\n"}
    messages = to_tool_calls(from_row(row))["messages"]
    done = {"role": "tool", "tool_call_id": "call_0", "content": "Tool executed successfully"}
    return [*messages, done, *messages]


def said(tokenizer, masked) -> str:
    return tokenizer.decode([i for i, own in zip(masked.ids, masked.mask, strict=True) if own])


def test_our_template_gives_exactly_the_calls_and_their_end_tokens(tokenizer):
    masked = mask_assistant(tokenizer, conversation())
    call = call_text("computer", {"action": "click", "x": 435, "y": 210})
    assert masked.texts == ("\n\nThere.\n\n" + call + "<|im_end|>",) * 2
    assert said(tokenizer, masked) == "".join(masked.texts)
    last = max(i for i, own in enumerate(masked.mask) if own)
    assert masked.ids[last] == tokenizer.eos_token_id
    assert tokenizer.decode(masked.ids[last + 1 :]) == "\n"


def test_the_prompt_before_each_answer_is_what_the_engine_would_be_sent(tokenizer):
    messages = conversation()
    masked = mask_assistant(tokenizer, messages)
    first = masked.mask.index(1)
    assert list(masked.ids[:first]) == render(tokenizer, messages[:1])


def test_no_token_straddles_the_answers_edge(tokenizer):
    """The prompt ends in a newline, and the answer begins with two."""
    masked = mask_assistant(tokenizer, conversation())
    first = masked.mask.index(1)
    assert tokenizer.decode(masked.ids[first:]).startswith("\n\nThere.")


def other(template: str):
    tokenizer = train_tokenizer(Corpus(("some text", "some text")))
    tokenizer.chat_template = template
    return tokenizer


CHAT = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": " <think>hm</think>two "},
    {"role": "user", "content": "three"},
    {"role": "assistant", "content": "four"},
]


def test_any_template_that_ends_turns_with_a_special_token_works():
    masked = mask_assistant(other(GEMMA_LIKE), CHAT)
    assert masked.texts == ("<think>hm</think>two<|im_end|>", "four<|im_end|>")


def test_a_template_that_strips_thoughts_is_refused_by_turn():
    """prime-rl#1334, verl#7322: a mask over such a template supervises the wrong tokens."""
    with pytest.raises(LabError, match="message 1: the conversation up to here"):
        mask_assistant(other(FORGETFUL), CHAT)


def test_a_template_without_end_tokens_is_refused():
    with pytest.raises(LabError, match="learn to stop"):
        mask_assistant(other(ENDLESS), CHAT[:2])
