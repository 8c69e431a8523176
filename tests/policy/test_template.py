"""Prompts: Qwen's format, and the promise that a prompt only ever grows."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cua_lab.errors import LabError
from cua_lab.policy.policy import Policy
from cua_lab.policy.template import (
    encode,
    expand_images,
    image_part,
    images_of,
    render,
    render_text,
)
from tests.support_calls import call_text

from .conftest import SYSTEM, TOOL

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

EXPECTED = """<|im_start|>system
You drive a browser.

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{"type": "function", "function": {"name": "computer", "description": "Click.", \
"parameters": {"type": "object"}}}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
<|im_start|>user
Click the Submit button.<|im_end|>
<|im_start|>assistant
I will click it.
<tool_call>
{"name": "computer", "arguments": {"action": "click", "x": 55, "y": 45}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
clicked (55, 45)
</tool_response><|im_end|>
<|im_start|>user
Tool returned the following:<|vision_start|><|image_pad|><|vision_end|><|im_end|>
<|im_start|>assistant
"""


def turn(call: dict, result: str = "Tool executed successfully", said: str | None = None) -> list:
    """What HUD adds to its messages for one call and its result."""
    return [
        {
            "role": "assistant",
            "content": said,
            "tool_calls": [
                {
                    "id": "call_0",
                    "type": "function",
                    "function": {"name": "computer", "arguments": call},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_0", "content": result},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Tool returned the following:"}, image_part(PNG)],
        },
    ]


def test_a_conversation_as_hud_sends_it_renders_as_real_servers_render_it(policy: Policy) -> None:
    """The text that a recorded vLLM answer's prompt ids spell, word for word."""
    tool = {
        "type": "function",
        "function": {
            "name": "computer",
            "description": "Click.",
            "parameters": {"type": "object"},
        },
    }
    messages = [
        {"role": "system", "content": "You drive a browser."},
        {"role": "user", "content": [{"type": "text", "text": "Click the Submit button."}]},
        *turn('{"action": "click", "x": 55, "y": 45}', "clicked (55, 45)", "I will click it."),
    ]
    assert render_text(policy.tokenizer, messages, [tool]) == EXPECTED
    assert images_of(messages) == [PNG]


calls = st.one_of(
    st.builds(
        lambda x, y: {"action": "click", "x": x, "y": y}, st.integers(0, 1000), st.integers(0, 1000)
    ),
    st.builds(
        lambda keys: {"action": "press", "keys": keys},
        st.lists(st.sampled_from(["left", "right", "up", "down", "ctrl+a"]), max_size=20),
    ),
    st.builds(
        lambda text: {"action": "type", "text": text},
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    ),
)
said = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<|>"), max_size=12)


@given(history=st.lists(st.tuples(said, calls), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_the_next_prompt_extends_prompt_and_canonical_answer(policy: Policy, history) -> None:
    """Templates that rewrite the past re-tokenise it (prime-rl#1334, verl#7322): 17.9% more loss.

    The newline after `<|im_end|>` belongs to the scaffold (verl#6501).
    """
    import json

    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": [{"type": "text", "text": "Go."}, image_part(PNG)]},
    ]
    for words, call in history:
        prompt = render(policy.tokenizer, messages, [TOOL])
        spoken = (words + "\n" if words else "") + call_text("computer", call) + "<|im_end|>"
        answer = encode(policy.tokenizer, spoken)
        messages += turn(json.dumps(call), said=words)
        longer = render(policy.tokenizer, messages, [TOOL])
        newline = encode(policy.tokenizer, "\n")
        head = prompt + answer + newline
        assert longer[: len(head)] == head
        assert policy.tokenizer.decode(answer) == spoken


def test_keys_keep_the_order_they_came_in(policy: Policy) -> None:
    text = render_text(
        policy.tokenizer, [{"role": "user", "content": "a"}, *turn('{"y": 1, "action": "click"}')]
    )
    assert '"arguments": {"y": 1, "action": "click"}}' in text


def test_one_pad_an_image_until_it_is_expanded(policy: Policy) -> None:
    messages = [{"role": "user", "content": [image_part(PNG), image_part(PNG)]}]
    ids = render(policy.tokenizer, messages)
    pad = policy.image_token_id
    assert ids.count(pad) == 2
    assert expand_images(ids, [16, 4], pad).count(pad) == 20
    with pytest.raises(LabError, match="2 image places but 1 images"):
        expand_images(ids, [16], pad)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([{"role": "robot", "content": "a"}], "message 0 has role 'robot'"),
        ([{"role": "user", "content": [{"type": "audio"}]}], "neither text nor an image"),
        ([{"role": "user", "content": 3}], "content of type int"),
        ([{"role": "user", "content": "a"}, *turn("{not json")], "arguments are not JSON"),
    ],
)
def test_a_message_that_cannot_be_rendered_is_named(policy: Policy, messages, expected) -> None:
    """sglang answers 400 to these; so does the engine, with this text."""
    with pytest.raises(LabError, match=expected):
        render(policy.tokenizer, messages)


def test_only_data_urls_are_fetched() -> None:
    web = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    with pytest.raises(LabError, match="send it as a data URL"):
        images_of([{"role": "user", "content": [web]}])
