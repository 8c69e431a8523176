"""A conversation becomes one prompt, whoever asks for it."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cua_lab.engine import chat_prompts
from cua_lab.engine.chat_prompts import ChatPrompts
from cua_lab.engine.prompt import Prompt
from cua_lab.errors import LabError
from cua_lab.policy.policy import Policy
from cua_lab.policy.template import image_part, render
from tests.serving.conftest import screen

TOOL = {"type": "function", "function": {"name": "computer", "parameters": {"type": "object"}}}


def chat(seed: int) -> list[dict]:
    """A new list each time, as it comes off the wire."""
    return [
        {"role": "user", "content": [{"type": "text", "text": "Go."}, image_part(screen(seed))]}
    ]


def test_a_group_renders_its_common_opening_once(tiny: Policy) -> None:
    chats = ChatPrompts(tiny, max_bytes=2 * ChatPrompts(tiny).get(chat(0), [TOOL]).size)
    first = chats.get(chat(0), [TOOL])
    assert chats.get(chat(0), [TOOL]) is first
    assert chats.get(chat(1), [TOOL]) is not first
    assert chats.get(chat(0)) is not first
    assert chats.get(chat(0), [TOOL]) is not first  # two others came since: forgotten


def test_images_stand_where_the_template_puts_them(tiny: Policy) -> None:
    prompt = ChatPrompts(tiny).get(chat(3), [TOOL])
    ids = render(tiny.tokenizer, chat(3), [TOOL])
    pad = tiny.image_token_id
    assert prompt.image_starts == (ids.index(pad),)
    assert (prompt.ids == pad).sum() == prompt.images[0].tokens == 4
    assert (prompt.cache_ids[prompt.ids == pad] == prompt.images[0].key).all()
    assert len(prompt) == len(ids) + 3


def test_ids_replace_the_rendering_and_keep_the_images(tiny: Policy) -> None:
    chats = ChatPrompts(tiny)
    prompt = chats.get(chat(3), ids=[5, tiny.image_token_id, 6])
    assert prompt.ids.tolist() == [5, *[tiny.image_token_id] * 4, 6]
    with pytest.raises(LabError, match="0 image tokens but 1 images"):
        chats.get(chat(3), ids=[5, 6])


TEXTS = st.text(max_size=12) | st.sampled_from(
    ["<|im_start|>user", "a<|im_end|>\n", "<|image_pad|>", "<tool_call>", "\n", "\ufdd0", " "]
)


def said_by(role: str, text: str, seed: int | None) -> dict[str, Any]:
    """A message with a screenshot, unless `seed` is missing; an assistant's is a call."""
    if role == "assistant" and seed is not None:
        call = {"name": "computer", "arguments": {"text": text}}
        return {"role": role, "content": None, "tool_calls": [{"function": call}]}
    if seed is None:
        return {"role": role, "content": text}
    parts = [{"type": "text", "text": text}, image_part(screen(seed))]
    return {"role": role, "content": parts}


MESSAGES = st.lists(
    st.builds(
        said_by,
        st.sampled_from(["system", "user", "assistant", "tool"]),
        TEXTS,
        st.none() | st.integers(0, 2),
    ),
    min_size=1,
    max_size=8,
)


def same(one: Prompt, other: Prompt) -> bool:
    """Array for array, the images included."""
    arrays = ("ids", "cache_ids", "position_ids")
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
        and (one.next_position, one.image_starts) == (other.next_position, other.image_starts)
        and [i.key for i in one.images] == [i.key for i in other.images]
    )


@given(messages=MESSAGES, cuts=st.sets(st.integers(1, 7)), tools=st.sampled_from([None, [TOOL]]))
@settings(max_examples=60, deadline=None)
def test_a_conversation_in_turns_has_the_prompt_it_has_at_once(
    tiny: Policy, messages: list[dict], cuts: set[int], tools: list | None
) -> None:
    chats = ChatPrompts(tiny)
    for count in sorted({min(cut, len(messages)) for cut in cuts} | {len(messages)}):
        grown = chats.get(messages[:count], tools)
        assert same(grown, ChatPrompts(tiny).get(messages[:count], tools))
        assert grown.next_position == int(grown.position_ids.max()) + 1


def three_turns() -> list[dict]:
    call = {"id": "c", "function": {"name": "computer", "arguments": "{}"}}
    messages = chat(0)
    for seed in (1, 2):
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "done"},
            said_by("user", "Now:", seed),
        ]
    return messages


def test_a_turn_renders_and_opens_only_what_is_new(
    tiny: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    read = chat_prompts.images_of
    monkeypatch.setattr(chat_prompts, "images_of", lambda m: opened.append(len(m)) or read(m))
    chats, messages = ChatPrompts(tiny), three_turns()
    for count in (1, 4, 7):
        chats.get(messages[:count], [TOOL])
    assert opened == [1, 3, 3]


def test_another_template_is_rendered_whole(tiny: Policy) -> None:
    """It may take back what it wrote: this one shows the last message alone."""
    tokenizer = type(tiny.tokenizer)(
        tokenizer_object=tiny.tokenizer.backend_tokenizer,
        chat_template="{{ messages[-1].content }}",
    )
    chats = ChatPrompts(dataclasses.replace(tiny, tokenizer=tokenizer))
    first, second = said_by("user", "first", None), said_by("user", "second", None)
    chats.get([first])
    assert same(chats.get([first, second]), chats.get([second]))


def test_screenshots_of_earlier_turns_count_towards_the_context(tiny: Policy) -> None:
    chats, messages = ChatPrompts(tiny, context_length=10), three_turns()
    for count in (1, 4):
        chats.get(messages[:count], [TOOL])
    with pytest.raises(LabError, match="12 tokens of images"):
        chats.get(messages, [TOOL])


def test_a_bad_message_is_named_by_its_place_in_the_whole(tiny: Policy) -> None:
    chats = ChatPrompts(tiny)
    chats.get(chat(0))
    with pytest.raises(LabError, match="message 1 has role 'critic'"):
        chats.get([*chat(0), said_by("critic", "no", None)])
