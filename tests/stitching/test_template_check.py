"""Templates that forget are found before a run (prime-rl#1334, verl#7322: +17.9% tokens)."""

import re

import pytest

from cua_lab.errors import LabError
from cua_lab.stitching.template_check import check_template, first_forgotten

TALK = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": "<think>hm</think>A"},
    {"role": "user", "content": "on"},
    {"role": "assistant", "content": "<think>so</think>B"},
    {"role": "user", "content": "more"},
    {"role": "assistant", "content": "C"},
]


def keeping(messages, ask):
    text = "".join(f"<{m['role']}>{m['content']}</s>\n" for m in messages)
    return text + ("<assistant>" if ask else "")


def forgetting(messages, ask):
    """Thoughts before the last user message are stripped, as Qwen3's own template does."""
    last = max(i for i, m in enumerate(messages) if m["role"] == "user")
    stripped = [
        m | {"content": re.sub("<think>.*?</think>", "", m["content"])} if i < last else m
        for i, m in enumerate(messages)
    ]
    return keeping(stripped, ask)


def test_a_template_that_keeps_its_prefix_passes():
    assert first_forgotten(keeping, TALK) is None
    check_template(keeping, TALK)


def test_the_first_turn_that_is_forgotten_is_named():
    found = first_forgotten(forgetting, TALK)
    assert (found.turn, found.seen_in) == (0, 1)
    assert found.before.startswith("<think>hm")
    with pytest.raises(LabError, match="renders turn 0 another way in the prompt of turn 1"):
        check_template(forgetting, TALK)


def test_the_labs_own_template_passes():
    from cua_lab.policy.template import render_text
    from cua_lab.policy.tokenizer import Corpus, train_tokenizer

    tokenizer = train_tokenizer(Corpus(()))
    check_template(
        lambda messages, ask: render_text(tokenizer, messages, add_generation_prompt=ask), TALK
    )
