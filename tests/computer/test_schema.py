"""One function, and calls that are wholly right or refused in words."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cua_lab.computer.config import ACTIONS, ToolConfig
from cua_lab.computer.coordinates import View
from cua_lab.computer.schema import Call, CallError, parse_call, tool_schema, view_of
from cua_lab.errors import LabError

SCREEN = (128, 128)
VIEW = View(SCREEN)
CONFIG = ToolConfig()
RIGHT = [
    {"action": "screenshot"},
    {"action": "click", "x": 1, "y": 2},
    {"action": "click", "x": 1, "y": 2, "button": "right"},
    {"action": "double_click", "x": 127, "y": 127},
    {"action": "triple_click", "x": 0, "y": 0},
    {"action": "move", "x": 5, "y": 6},
    {"action": "drag", "x": 1, "y": 2, "to_x": 3, "to_y": 4},
    {"action": "type", "text": "hello, 日本\n"},
    {"action": "press", "keys": ["ctrl+a", "+", "left"]},
    {"action": "scroll", "x": 1, "y": 1, "scroll_y": -3},
    {"action": "scroll", "x": 1, "y": 1, "scroll_x": 2, "scroll_y": 1},
    {"action": "wait"},
    {"action": "wait", "seconds": 0.5},
    {"action": "finish"},
    {"action": "finish", "text": ""},
]
WRONG = [
    ({}, "action is missing; allowed: screenshot"),
    ({"action": 3}, "action must be a string; got 3"),
    ({"action": "clik", "x": 1, "y": 1}, "did you mean 'click'"),
    ({"action": "click", "x": 1}, "y missing; click takes x, y, button"),
    ({"action": "click"}, "x and y missing"),
    ({"action": "click", "x": 1, "y": 1, "z": 1}, "unknown argument 'z'; click takes x, y, button"),
    ({"action": "screenshot", "x": 1}, "unknown argument 'x'; screenshot takes no arguments"),
    ({"action": "click", "x": 128, "y": 1}, "x is outside of the screen: 0 to 127; got 128"),
    ({"action": "click", "x": -1, "y": 1}, "x is outside of the screen"),
    ({"action": "click", "x": 1, "y": 99999}, "y is outside of the screen"),
    ({"action": "click", "x": True, "y": 1}, "x must be a whole number from 0 to 127; got True"),
    ({"action": "click", "x": "5", "y": 1}, "x must be a whole number"),
    ({"action": "click", "x": 1.5, "y": 1}, "x must be a whole number"),
    ({"action": "click", "x": math.nan, "y": 1}, "x must be a whole number"),
    ({"action": "click", "x": None, "y": 1}, "x must be a whole number"),
    ({"action": "click", "x": 1, "y": 1, "button": "wheel"}, "button must be one of left"),
    ({"action": "drag", "x": 1, "y": 1, "to_x": 1, "to_y": 500}, "to_y is outside of the screen"),
    ({"action": "type"}, "text missing"),
    ({"action": "type", "text": ""}, "text is empty"),
    ({"action": "type", "text": 5}, "text must be a string; got 5"),
    ({"action": "type", "text": "a\x00"}, "U+0000 cannot be typed"),
    ({"action": "type", "text": "a" * 2001}, "2001 characters; at most 2000"),
    ({"action": "press"}, "keys missing"),
    ({"action": "press", "keys": []}, "keys must have 1 to 100 entries; got 0"),
    ({"action": "press", "keys": ["a"] * 101}, "keys must have 1 to 100 entries; got 101"),
    ({"action": "press", "keys": "ctrl+c"}, "keys must be an array of strings"),
    ({"action": "press", "keys": ["a", 5]}, "keys must be an array of strings"),
    ({"action": "press", "keys": ["a", ""]}, "the key is empty"),
    ({"action": "press", "keys": ["ctrl+nope"]}, "unknown key 'nope' in 'ctrl+nope'"),
    ({"action": "scroll", "x": 1, "y": 1}, "scroll_x or scroll_y must be other than 0"),
    ({"action": "scroll", "x": 1, "y": 1, "scroll_y": 31}, "scroll_y must be a whole number"),
    ({"action": "scroll", "x": 1, "y": 1, "scroll_y": 1.5}, "from -30 to 30; got 1.5"),
    ({"action": "scroll", "x": 1, "y": 1, "scroll_y": 10**400}, "scroll_y must be a whole number"),
    ({"action": "wait", "seconds": 0}, "seconds must be a number above 0"),
    ({"action": "wait", "seconds": -1}, "seconds must be a number above 0"),
    ({"action": "wait", "seconds": math.inf}, "seconds must be a number above 0"),
    ({"action": "wait", "seconds": True}, "seconds must be a number above 0"),
    ({"action": "finish", "text": 1}, "text must be a string"),
]


@pytest.mark.parametrize("space", ["pixels", "0-1000", "0-1"])
def test_the_schema_is_valid_and_takes_every_right_call(space: str) -> None:
    schema = tool_schema(ToolConfig(coordinate_space=space), SCREEN)
    assert schema["type"] == "function"
    assert schema["function"]["name"] == "computer"
    parameters = schema["function"]["parameters"]
    Draft202012Validator.check_schema(parameters)
    if space == "pixels":
        for call in RIGHT:
            Draft202012Validator(parameters).validate(call)


@pytest.mark.parametrize("call", RIGHT, ids=json.dumps)
def test_a_right_call_is_read(call: dict) -> None:
    assert parse_call(call, VIEW, CONFIG).action == call["action"]


@pytest.mark.parametrize(("call", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_call_is_refused_with_what_was_got_and_what_is_allowed(call, words) -> None:
    with pytest.raises(CallError) as error:
        parse_call(call, VIEW, CONFIG)
    assert words in str(error.value)


def test_the_order_of_arguments_is_fixed_with_the_action_first() -> None:
    """Demonstrations and the chat template write calls in the schema's order."""
    properties = tool_schema(CONFIG, SCREEN)["function"]["parameters"]["properties"]
    assert list(properties) == [
        "action", "x", "y", "to_x", "to_y", "button", "text", "keys",
        "scroll_x", "scroll_y", "seconds",
    ]  # fmt: skip
    assert properties["action"]["enum"] == list(ACTIONS)


def test_fewer_actions_make_a_shorter_schema() -> None:
    """The schema is in every prompt; the small policy pays for each token of it."""
    small = tool_schema(ToolConfig(actions=("click",), coordinate_space="0-1000"), SCREEN)
    assert len(json.dumps(small)) < 450 < len(json.dumps(tool_schema(CONFIG, SCREEN))) < 1700
    assert list(small["function"]["parameters"]["properties"]) == ["action", "x", "y", "button"]
    with pytest.raises(CallError, match="unknown action 'press'; allowed: click"):
        parse_call({"action": "press", "keys": ["a"]}, VIEW, ToolConfig(actions=("click",)))


def test_the_bounds_in_the_schema_are_those_of_the_coordinate_space() -> None:
    config = ToolConfig(screenshot_width=64)
    x = tool_schema(config, (128, 96))["function"]["parameters"]["properties"]["x"]
    y = tool_schema(config, (128, 96))["function"]["parameters"]["properties"]["y"]
    assert (x["maximum"], y["maximum"]) == (63, 47)
    thousand = tool_schema(ToolConfig(coordinate_space="0-1000"), SCREEN)
    assert thousand["function"]["parameters"]["properties"]["x"] == {
        "type": "integer", "minimum": 0, "maximum": 1000,
    }  # fmt: skip


def test_points_are_pixels_of_the_desktop_once_read() -> None:
    config = ToolConfig(coordinate_space="0-1000")
    call = parse_call({"action": "click", "x": 1000, "y": 500}, view_of(config, SCREEN), config)
    assert call == Call("click", at=(127, 64))


def test_a_long_wait_is_cut_to_the_limit() -> None:
    assert parse_call({"action": "wait", "seconds": 1e9}, VIEW, CONFIG).wait_s == 5.0
    assert parse_call({"action": "wait"}, VIEW, ToolConfig(max_wait_s=0.2)).wait_s == 0.2


def test_a_configuration_that_makes_no_sense_names_the_value() -> None:
    for wrong in (
        {"actions": ("jump",)},
        {"actions": ()},
        {"coordinate_space": "percent"},
        {"screenshot_width": 0},
        {"max_keys_per_call": 0},
        {"max_wait_s": math.inf},
        {"pace_ms": -1},
    ):
        with pytest.raises(LabError):
            ToolConfig(**wrong)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
NAMES = st.sampled_from(
    ["x", "y", "to_x", "to_y", "button", "text", "keys", "scroll_x", "scroll_y", "seconds"]
)


@given(
    st.dictionaries(NAMES | st.text(max_size=4), JSON, max_size=5), st.sampled_from(ACTIONS) | JSON
)
def test_whatever_a_model_says_is_a_call_or_a_call_error(arguments, action) -> None:
    """A bad action never ends an episode: no other exception leaves the parser."""
    try:
        call = parse_call({**arguments, "action": action}, VIEW, CONFIG)
    except CallError:
        return
    assert call.action in ACTIONS
    for point in (call.at, call.to):
        assert point is None or (0 <= point[0] < 128 and 0 <= point[1] < 128)
    assert 0 <= call.wait_s <= CONFIG.max_wait_s


def test_what_is_clicked_for_the_policy_is_said_to_it() -> None:
    from cua_lab.play.agent import SYSTEM_PROMPT, system_prompt

    silent, told = ToolConfig(), ToolConfig(focus_click=True)
    without = tool_schema(silent, SCREEN)["function"]["description"]
    assert "focus" not in without
    said = tool_schema(told, SCREEN)["function"]["description"]
    assert said.startswith(without)
    assert "clicked once" in said
    assert system_prompt(short=False, tool=silent) == SYSTEM_PROMPT
    assert "click it before you type" in system_prompt(short=True, tool=told)
    mouse = ToolConfig(focus_click=True, actions=("click",))
    assert "focus" not in tool_schema(mouse, SCREEN)["function"]["description"]
