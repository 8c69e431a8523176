"""Conversations: the article's shape and ours say the same, and each leads back to the other."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.schema import parse_call, view_of
from cua_lab.dataset.actions import ACTIONS, DIRECTIONS
from cua_lab.dataset.conversations import (
    DONE,
    article_to_tool_calls,
    from_conversation,
    in_space,
    to_article,
    to_tool_calls,
    tool_calls_to_article,
)
from cua_lab.dataset.grounding import GroundingSample, from_row
from cua_lab.errors import LabError

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
words = texts.filter(str.strip)
units = st.floats(0, 1, allow_nan=False)
points = st.tuples(units, units)


@st.composite
def samples(draw) -> GroundingSample:
    action = draw(st.sampled_from(sorted(ACTIONS)))
    spec = ACTIONS[action]
    row = {"screenshot": draw(words), "instruction": draw(words), "action": action}
    row["coordinate_space"] = "0-1"
    if spec.point == "required" or (spec.point == "allowed" and draw(st.booleans())):
        row["coordinates"] = draw(points)
    if action == "drag":
        row["end_coordinates"] = draw(points)
    if action == "type":
        row["text"] = draw(texts)
    if action == "key":
        row["keys"] = draw(st.lists(words, min_size=1, max_size=3))
    if action == "scroll":
        row["direction"] = draw(st.sampled_from(DIRECTIONS))
        if draw(st.booleans()):
            row["amount"] = draw(st.integers(1, 900) | st.floats(0.1, 40))
    if draw(st.booleans()):
        row["note"] = draw(st.dictionaries(texts, units | texts, max_size=2))
    if draw(st.booleans()):
        row["thought"] = draw(texts)
    return from_row(row)


@settings(max_examples=60, deadline=None)
@given(samples())
def test_a_sample_survives_both_shapes(sample):
    assert from_conversation(to_article(sample)) == sample
    assert from_conversation(to_tool_calls(sample)) == sample


@settings(max_examples=40, deadline=None)
@given(st.lists(samples(), min_size=1, max_size=3))
def test_messages_survive_the_way_there_and_back(chosen):
    """From either shape, over several turns, byte for byte."""
    article = [message for sample in chosen for message in to_article(sample)["messages"]]
    ours = article_to_tool_calls(article, middle=(0.5, 0.5))
    assert tool_calls_to_article(ours) == article
    alone = [{k: v for k, v in message.items() if k != "source"} for message in ours]
    assert article_to_tool_calls(tool_calls_to_article(alone), middle=(0.5, 0.5)) == alone


@settings(max_examples=60, deadline=None)
@given(samples().filter(lambda s: s.action != "key" and (s.text or "").isprintable()))
def test_every_call_is_one_that_the_tool_takes(sample):
    (call,) = to_tool_calls(sample, "0-1000")["messages"][1]["tool_calls"]
    config = ToolConfig(coordinate_space="0-1000")
    arguments = json.loads(call["function"]["arguments"])
    assert next(iter(arguments)) == "action"
    parse_call(arguments, view_of(config, (1280, 800)), config)


def click(**changes) -> dict:
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "call_0",
                "type": "function",
                "function": {
                    "name": "computer",
                    "arguments": '{"action": "click", "x": 1, "y": 2}',
                },
            }
        ],
    }
    return message | changes


USER = {"role": "user", "content": "look"}


@pytest.mark.parametrize(
    "messages",
    [
        [click(), {"role": "tool", "tool_call_id": "call_0", "content": DONE}, USER],
        [click(), {"role": "tool", "tool_call_id": "call_0", "content": "it failed"}, USER],
        [click(), USER],
        [click(content=None), USER],
        [click(), {"role": "tool", "tool_call_id": "call_0", "content": DONE}],
        [click(content="I see it.\n\n")],
    ],
)
def test_our_messages_survive_however_they_are(messages):
    assert article_to_tool_calls(tool_calls_to_article(messages)) == messages


@pytest.mark.parametrize(
    "content",
    [
        '```json\n{"action":"click","coordinates":[1,2]}\n```',
        'First.\n```json\n{\n "action": "click",\n "coordinates": [1.5, 2]\n}\n```\nDone.',
        'As in ```json\n{"a": 1}\n``` so:\n```json\n{"action": "wait"}\n```',
    ],
)
def test_odd_formatting_of_the_article_is_kept(content):
    article = [USER, {"role": "assistant", "content": content}, USER]
    assert tool_calls_to_article(article_to_tool_calls(article)) == article


def test_the_canonical_call_of_a_click():
    sample = from_row(
        {
            "screenshot": "a.png",
            "instruction": "Click the red button.",
            "action": "click",
            "coordinates": [435, 210],
            "coordinate_space": "0-1000",
        }
    )
    user, answer = to_tool_calls(sample)["messages"]
    assert [part["type"] for part in user["content"]] == ["text", "image"]
    arguments = answer["tool_calls"][0]["function"]["arguments"]
    assert arguments == '{"action": "click", "x": 435, "y": 210}'
    assert "source" not in answer


def test_a_scroll_in_pixels_needs_the_screens_size():
    row = {"screenshot": "a.png", "instruction": "Down", "action": "scroll", "direction": "down"}
    with pytest.raises(LabError, match="image_size"):
        to_tool_calls(from_row(row))
    assert to_tool_calls(from_row(row), "0-1000")["messages"][1]["tool_calls"]


def test_changing_the_space_is_explicit_and_rounds():
    sample = from_row(
        {
            "screenshot": "a.png",
            "instruction": "Open",
            "action": "click",
            "coordinates": [640, 401],
            "bbox": [600, 390, 700, 410],
            "coordinate_space": "pixels",
            "image_size": [1280, 800],
        }
    )
    moved = in_space(sample, "0-1000")
    assert moved.coordinates == (500.0, 502.0)
    assert moved.bbox == (469.0, 488.0, 547.0, 513.0)


@pytest.mark.parametrize(
    "content", ["Click it", "```json\n{broken\n```", "```json\n[1]\n```", None]
)
def test_an_answer_that_is_no_action_is_an_error_for_people(content):
    with pytest.raises(LabError):
        article_to_tool_calls([{"role": "assistant", "content": content}])
