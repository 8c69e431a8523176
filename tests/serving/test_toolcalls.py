"""The parser keeps and loses what sglang's qwen25 parser keeps and loses."""

import pytest

from cua_lab.serving.toolcalls import ToolCall, parse_tool_calls
from tests.recordings import SGLANG, recording

TOOLS = ("computer",)


def block(body: str) -> str:
    """One call as the model writes it."""
    return f"<tool_call>\n{body}\n</tool_call>"


@pytest.mark.parametrize(
    "name",
    [
        "b6_forced_hermes_tool_call",
        "b7_forced_text_and_two_tool_calls",
        "b8_forced_malformed_tool_call",
        "b9_truncated_tool_call",
        "a_text__all_flags_top2",
    ],
)
def test_the_message_is_the_one_that_sglang_made_of_the_same_tokens(name: str) -> None:
    choice = recording(SGLANG, name)["response"]["choices"][0]
    said = "".join(text for _, _, text in choice["meta_info"]["output_token_logprobs"])
    parsed = parse_tool_calls(said.removesuffix("<|endoftext|>"), TOOLS)
    assert parsed.text == choice["message"]["content"]
    calls = choice["message"].get("tool_calls", [])
    assert [(c.name, c.arguments) for c in parsed.calls] == [
        (c["function"]["name"], c["function"]["arguments"]) for c in calls
    ]


def test_text_without_a_call_is_left_as_it_is() -> None:
    assert parse_tool_calls("  a <tool_call> b\n", TOOLS).text == "  a <tool_call> b\n"


def test_a_broken_call_loses_its_text_and_the_good_one_after_it_stays() -> None:
    """Which is why training reads ids: the message is not what was said."""
    parsed = parse_tool_calls(f"Go. {block('{x')} then {block(GOOD)} bye", TOOLS)
    assert parsed.text == "Go."
    assert parsed.calls == (ToolCall("computer", '{"x": 1}'),)


GOOD = '{"name": "computer", "arguments": {"x": 1}}'


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "browser", "arguments": {}}',
        '{"name": ["computer"], "arguments": {}}',
        '{"arguments": {}}',
        "[1]",
        "3",
        '"computer"',
    ],
)
def test_a_call_to_nothing_known_is_dropped(body: str) -> None:
    assert parse_tool_calls(block(body), TOOLS).calls == ()


def test_arguments_are_serialised_again_and_keep_their_characters() -> None:
    compact = '{"name":"computer","arguments":{"text":"caf\\u00e9","n":1.0}}'
    (call,) = parse_tool_calls(block(compact), TOOLS).calls
    assert call.arguments == '{"text": "café", "n": 1.0}'
    (other,) = parse_tool_calls(block('{"name": "computer", "parameters": {"x": 2}}'), TOOLS).calls
    assert other.arguments == '{"x": 2}'


def test_one_block_may_hold_a_list_of_calls() -> None:
    assert len(parse_tool_calls(block(f"[{GOOD}, {GOOD}]"), TOOLS).calls) == 2
