"""The tool against a recording client: what reaches the wire, and that nothing does too early."""

import asyncio
import base64
import io

import numpy as np
import pytest
from PIL import Image

from cua_lab.computer import tool as tool_module
from cua_lab.computer.screen import DeadScreen
from cua_lab.computer.screenshot import scaled_screenshot
from cua_lab.computer.tool import ComputerTool

SHIFT, CONTROL = 0xFFE1, 0xFFE3


def run(tool: ComputerTool, **arguments):
    return asyncio.run(tool.execute(arguments))


def text_of(result) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


def test_every_action_comes_back_with_the_screen(desktop) -> None:
    """One turn is acting and seeing."""
    result = run(desktop.tool(), action="click", x=3, y=4)
    (image,) = result.content
    assert not result.isError
    assert Image.open(io.BytesIO(base64.b64decode(image.data))).size == (128, 128)


def test_a_click_moves_presses_and_releases(desktop) -> None:
    run(desktop.tool(), action="click", x=3, y=4, button="right")
    assert desktop.events == [("point", 3, 4, 0), ("point", 3, 4, 4), ("point", 3, 4, 0)]


@pytest.mark.parametrize(("action", "times"), [("double_click", 2), ("triple_click", 3)])
def test_several_clicks_are_paced_one_by_one(desktop, action, times) -> None:
    """X servers drop 5 of 12 double clicks that come without a pause."""
    run(desktop.tool(pace_ms=1), action=action, x=1, y=1)
    assert desktop.events.count(("point", 1, 1, 1)) == times
    assert desktop.writes == times


def test_a_drag_holds_the_button_all_the_way(desktop) -> None:
    run(desktop.tool(), action="drag", x=0, y=0, to_x=64, to_y=32)
    buttons = [event[3] for event in desktop.events]
    assert buttons == [0, 1, 1, 1, 1, 1, 0]
    assert desktop.events[-1] == ("point", 64, 32, 0)


def test_keys_play_in_order_and_chords_are_released_backwards(desktop) -> None:
    run(desktop.tool(), action="press", keys=["ctrl+shift+t", "+"])
    assert desktop.events == [
        ("down", CONTROL), ("down", SHIFT), ("down", ord("T")),
        ("up", ord("T")), ("up", SHIFT), ("up", CONTROL),
        ("down", ord("+")), ("up", ord("+")),
    ]  # fmt: skip


def test_the_first_key_is_preceded_by_a_click_where_the_page_has_no_focus(desktop) -> None:
    """hud-browser's 2048: a key without one scored 0.0 on 4 of 4 fresh boots."""
    tool = desktop.tool(focus_click=True)
    run(tool, action="press", keys=["left"])
    run(tool, action="press", keys=["left"])
    middle = [("point", 64, 64, 0), ("point", 64, 64, 1), ("point", 64, 64, 0)]
    key = [("down", 0xFF51), ("up", 0xFF51)]
    assert desktop.events == [*middle, *key, *key]


def test_a_policy_that_has_clicked_is_not_helped(desktop) -> None:
    tool = desktop.tool(focus_click=True)
    run(tool, action="click", x=3, y=4)
    run(tool, action="type", text="a")
    assert ("point", 64, 64, 1) not in desktop.events


def test_a_call_is_one_write_however_many_keys_it_has(desktop) -> None:
    run(desktop.tool(), action="press", keys=["left", "down"] * 10)
    assert len(desktop.events) == 40
    assert desktop.writes == 1


def test_text_is_typed_whole_line_ends_and_other_scripts_included(desktop) -> None:
    run(desktop.tool(), action="type", text="o日\n")
    assert [e[1] for e in desktop.events if e[0] == "down"] == [ord("o"), 0x10065E5, 0xFF0D]


def test_the_wheel_turns_both_ways_and_sideways_with_shift(desktop) -> None:
    """asyncvnc and HUD drop scroll_x without a word; Shift and the wheel do it on every server."""
    run(desktop.tool(), action="scroll", x=5, y=5, scroll_x=2, scroll_y=-1)
    buttons = [event[3] if event[0] == "point" else event for event in desktop.events]
    assert buttons == [0, 8, 0, ("down", SHIFT), 16, 0, 16, 0, ("up", SHIFT)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"action": "type", "text": "ok\x00"},
        {"action": "press", "keys": ["ctrl+c", "nope"]},
        {"action": "click", "x": 5, "y": 500},
        {"action": "drag", "x": 1, "y": 1, "to_x": 2, "to_y": -1},
    ],
)
def test_a_call_that_is_wrong_at_its_end_sends_nothing_at_all(desktop, wrong) -> None:
    """asyncvnc types the first half and then raises."""
    result = run(desktop.tool(), **wrong)
    assert result.isError
    assert desktop.events == []
    assert len(text_of(result)) > 20
    assert all(block.type == "text" for block in result.content)


def test_finish_beside_other_calls_is_refused_in_words(desktop) -> None:
    """Alone in its turn it ends the episode before it reaches the tool (see the agent's tests)."""
    result = run(desktop.tool(), action="finish")
    assert result.isError
    assert "only call of its turn" in text_of(result)


def test_a_screen_that_takes_no_input_is_dead_and_nothing_stays_down(desktop) -> None:
    desktop.broken_at = 2
    with pytest.raises(DeadScreen, match="took no input for drag"):
        run(desktop.tool(pace_ms=1), action="drag", x=0, y=0, to_x=9, to_y=9)
    assert desktop.events[-1][3] == 0


def test_a_call_that_is_cancelled_lets_go_of_the_button(desktop) -> None:
    async def cancelled() -> None:
        drag = desktop.tool(pace_ms=1000).execute(
            {"action": "drag", "x": 0, "y": 0, "to_x": 99, "to_y": 99}
        )
        task = asyncio.create_task(drag)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert desktop.events[-2:] == [("point", 0, 0, 1), ("point", 0, 0, 0)]


def test_the_policy_sees_and_points_at_a_smaller_screen(desktop) -> None:
    tool = desktop.tool(screenshot_width=64)
    result = run(tool, action="click", x=63, y=63)
    assert Image.open(io.BytesIO(base64.b64decode(result.content[0].data))).size == (64, 64)
    assert desktop.events[-1] == ("point", 127, 127, 0)


def test_many_different_characters_come_with_a_warning(desktop) -> None:
    """After 21 of them an X server has no spare keycode and drops the rest."""
    tool = desktop.tool()
    assert text_of(run(tool, action="type", text="日本語")) == ""
    many = "".join(chr(0x4E00 + i) for i in range(30))
    assert "check the text" in text_of(run(tool, action="type", text=many))


def test_a_frame_is_shrunk_by_averaging_whole_blocks() -> None:
    frame = np.zeros((4, 4, 3), np.uint8)
    frame[:2, :2] = 200
    small = np.asarray(Image.open(io.BytesIO(scaled_screenshot(frame, (2, 2)))))
    assert small[..., 0].tolist() == [[200, 0], [0, 0]]


def test_a_frame_of_any_size_is_shrunk_to_the_size_asked_for() -> None:
    frame = np.full((1080, 1920, 3), 7, np.uint8)
    image = Image.open(io.BytesIO(scaled_screenshot(frame, (1000, 563))))
    assert image.size == (1000, 563)
    assert image.mode == "RGB"


def test_on_a_real_screen_a_new_character_is_introduced_once_and_a_capital_has_shift(
    desktop, monkeypatch
) -> None:
    """`Čecha` arrived as `echa` (jordansissel/xdotool#437), and Xvnc pressed Caps Lock for `A`
    (TigerVNC/tigervnc#156)."""
    monkeypatch.setattr(tool_module, "LEND_S", 0.0)
    tool = desktop.tool(pace_ms=1)
    asyncio.run(tool.execute({"action": "type", "text": "éAé"}))
    e, ctrl, shift = 0xE9, 0xFFE3, 0xFFE1
    tap = [("down", e), ("up", e)]
    capital = [("down", shift), ("down", 65), ("up", 65), ("up", shift)]
    assert desktop.events == [("down", ctrl), *tap, ("up", ctrl), *tap, *capital, *tap]
    desktop.events.clear()
    asyncio.run(tool.execute({"action": "press", "keys": ["é"]}))
    assert desktop.events == tap


def test_the_embedded_desktop_gets_the_characters_alone(desktop) -> None:
    asyncio.run(desktop.tool().execute({"action": "type", "text": "éA"}))
    assert desktop.events == [("down", 0xE9), ("up", 0xE9), ("down", 65), ("up", 65)]
