"""A conversation becomes one prompt, whoever asks for it."""

import pytest

from cua_lab.engine.chat_prompts import ChatPrompts
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
