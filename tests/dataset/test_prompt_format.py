"""The prompt format: the same words for training and measuring, and points that survive it."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.schema import tool_schema
from cua_lab.dataset.grounding import from_row
from cua_lab.dataset.prompt_format import PromptFormat, prompt_format_of, read_prompt_format
from cua_lab.errors import LabError
from cua_lab.policy.vision import QWEN2_5_VL

CLICK = PromptFormat(system="Use the screen.", actions=("click",))
PIXELS = PromptFormat("pixels", geometry=QWEN2_5_VL)


def sample(**changes):
    row = {
        "screenshot": "a.png",
        "instruction": "Click it",
        "action": "click",
        "coordinates": [412, 87],
        "coordinate_space": "pixels",
        "image_size": [1920, 1080],
    }
    return from_row(row | changes)


def call(prompt_format: PromptFormat, one, size=(1920, 1080)) -> dict:
    return json.loads(prompt_format.answer(one, size)["tool_calls"][0]["function"]["arguments"])


@pytest.mark.parametrize("point", [(0, 0), (1919, 1079), (412, 87), (961, 540)])
@pytest.mark.parametrize("prompt_format", [CLICK, PIXELS], ids=["0-1000", "pixels"])
def test_what_is_read_is_the_point_that_was_said(prompt_format, point) -> None:
    read = prompt_format.read(call(prompt_format, sample(coordinates=list(point))), (1920, 1080))
    assert read == pytest.approx((point[0] / 1920, point[1] / 1080), abs=0.0015)


def test_pixels_are_those_of_the_image_as_it_is_resized() -> None:
    """Qwen2.5-VL sees 1920x1080 as 1932x1092 and points into that."""
    assert PIXELS.view((1920, 1080)).screen == (1932, 1092)
    assert call(PIXELS, sample(coordinates=[1919, 1079])) == {
        "action": "click",
        "x": 1931,
        "y": 1091,
    }
    limits = PIXELS.tools((1920, 1080))[0]["function"]["parameters"]["properties"]
    assert limits["x"]["maximum"] == 1931
    with pytest.raises(LabError, match="geometry"):
        PromptFormat("pixels")


def test_the_prompt_is_the_agents() -> None:
    messages = CLICK.messages("Click it", {"type": "image"})
    assert [m["role"] for m in messages] == ["system", "user"]
    assert [part["type"] for part in messages[1]["content"]] == ["text", "image"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "click", "x": 1001, "y": 3},
        {"action": "click", "x": 3},
        {"action": "press", "keys": ["enter"]},
        {"x": 3, "y": 3},
        "click",
        None,
    ],
)
def test_what_the_tool_would_refuse_is_no_point(arguments) -> None:
    assert CLICK.read(arguments, (100, 100)) is None


def test_actions_without_a_point_and_with_two_are_said_as_the_tool_takes_them() -> None:
    everything = PromptFormat()
    keys = sample(action="key", keys=["ctrl+s"], coordinates=None)
    assert call(everything, keys) == {"action": "press", "keys": ["ctrl+s"]}
    drag = sample(action="drag", coordinates=[0, 0], end_coordinates=[1919, 1079])
    assert call(everything, drag) == {"action": "drag", "x": 0, "y": 0, "to_x": 1000, "to_y": 1000}
    scroll = sample(action="scroll", direction="down", coordinates=None)
    assert call(everything, scroll) == {"action": "scroll", "x": 500, "y": 500, "scroll_y": 3}
    with pytest.raises(LabError, match="unknown action 'press'"):
        CLICK.answer(keys, (1920, 1080))


def test_a_folder_remembers_how_its_policy_is_asked(tmp_path) -> None:
    for prompt_format in (CLICK, PIXELS):
        prompt_format.save(tmp_path)
        assert read_prompt_format(tmp_path) == prompt_format
    (tmp_path / "prompt_format.json").write_text("{}")
    with pytest.raises(LabError, match="cannot be read"):
        read_prompt_format(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"max_keys_per_call": 1},
        {"max_scroll_clicks": 5},
        {"max_wait_s": 1.0},
        {"actions": ("press",)},
        {"screenshot_width": 64},
        {"coordinate_space": "0-1000"},
    ],
)
def test_all_of_a_tool_that_changes_its_schema_is_remembered(tmp_path, change) -> None:
    """A policy trained with one key a call and asked with the default said no valid call."""
    tool = replace(ToolConfig(coordinate_space="0-1000"), **change)
    policy = SimpleNamespace(coordinate_space="0-1000", vision=None)
    prompt_format_of(policy, tool=tool, first_screenshot=False).save(tmp_path)
    again = read_prompt_format(tmp_path)
    assert again.tools((128, 128)) == [tool_schema(tool, (128, 128))]
    assert again.config.screenshot_width == tool.screenshot_width
    assert again.first_screenshot is False


def test_a_file_of_an_earlier_name_is_read_with_the_tools_defaults(tmp_path) -> None:
    old = {"space": "0-1000", "system": "Use it.", "actions": ["click"], "geometry": None}
    (tmp_path / "asking.json").write_text(json.dumps(old))
    assert read_prompt_format(tmp_path) == PromptFormat(system="Use it.", actions=("click",))
