"""Public formats: every documented field finds its place, and none is lost.

The rows below are made up, in exactly the published forms.
"""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cua_lab.dataset.data_checks import Rules
from cua_lab.dataset.formats import convert_file, licences, read_public, readers
from cua_lab.dataset.formats.agentnet import read_task as read_agentnet
from cua_lab.dataset.formats.aguvis import read_conversation
from cua_lab.dataset.formats.osworld import read_task as read_osworld
from cua_lab.dataset.formats.pyautogui import parse_actions
from cua_lab.dataset.formats.screenspot import read_hub, read_original
from cua_lab.dataset.formats.webarena import read_config
from cua_lab.dataset.grounding import from_row
from cua_lab.dataset.quality import check_file
from cua_lab.dataset.row_needs import missing
from cua_lab.errors import LabError

SCREENSPOT = {
    "img_filename": "web_3b0a.png",
    "bbox": [42, 1102, 197, 70],
    "instruction": "view the details of the item",
    "data_type": "text",
    "data_source": "shop",
    "novel_field": {"kept": True},
}
HUB = {
    "file_name": "web_3b0a.png",
    "bbox": [0.25, 0.5, 0.75, 0.6],
    "instruction": "view the details of the item",
    "data_type": "icon",
    "data_source": "shop",
    "image": {"bytes": "..."},
}
AGENTNET = {
    "task_id": "20240927_1a2b",
    "instruction": "Export the picture",
    "natural_language_task": "Could you export my picture?",
    "actual_task": "Export picture as PNG",
    "task_completed": True,
    "alignment_score": 9,
    "efficiency_score": 8,
    "task_difficulty": 3,
    "reason": "done in two steps",
    "domain": "graphics",
    "traj": [
        {
            "index": 0,
            "image": "step0.png",
            "value": {
                "observation": "A desktop with a taskbar",
                "thought": "Open the editor first",
                "action": "Click the editor's icon",
                "code": "pyautogui.click(x=0.018, y=0.508)",
                "reflection": "",
                "last_step_correct": None,
                "last_step_redundant": None,
            },
        },
        {
            "index": 1,
            "image": "step1.png",
            "speed": 2,
            "value": {
                "observation": "The editor",
                "thought": "Drag the layer",
                "action": "Drag the layer to the right and stop",
                "code": "pyautogui.moveTo(x=0.2, y=0.3)\n"
                "pyautogui.dragTo(x=0.6, y=0.3, button='left')\n"
                "computer.terminate(status='success')",
                "reflection": "It opened",
                "last_step_correct": True,
                "last_step_redundant": False,
            },
        },
    ],
}
AGUVIS = {
    "image": "guienv/1.png",
    "source": "guienv",
    "conversations": [
        {"from": "system", "value": "You are a GUI agent."},
        {"from": "human", "value": "<image>\nOpen the cart"},
        {
            "from": "gpt",
            "value": "pyautogui.click(x=0.5, y=0.25)",
            "recipient": "os",
            "end_turn": True,
            "bbox_gt": [0.4, 0.2, 0.6, 0.3],
        },
        {"from": "human", "value": "Search for shoes"},
        {"from": "gpt", "value": "Thought: the field has the focus.", "recipient": "all"},
        {"from": "gpt", "value": "pyautogui.write(message='shoes')", "recipient": "os"},
    ],
}
OSWORLD = {
    "id": "7f35355e-02a6",
    "snapshot": "libreoffice_calc",
    "instruction": "Export the table to a CSV file.",
    "source": "https://example.org/q",
    "config": [
        {"type": "download", "parameters": {"files": [{"url": "u", "path": "/home/user/t.xlsx"}]}},
        {"type": "open", "parameters": {"path": "/home/user/t.xlsx"}},
    ],
    "trajectory": "trajectories/",
    "related_apps": ["libreoffice_calc", "vs_code"],
    "evaluator": {
        "func": ["compare_csv", "exact_match"],
        "conj": "and",
        "result": [{"type": "vm_file", "path": "/home/user/t.csv", "dest": "t.csv"}] * 2,
        "expected": [{"type": "cloud_file", "path": "p", "dest": "gold.csv"}] * 2,
    },
    "proxy": False,
    "fixed_ip": False,
    "possibility_of_env_change": "low",
}
WEBARENA = {
    "sites": ["shopping_admin"],
    "task_id": 7,
    "require_login": True,
    "storage_state": "./.auth/shopping_admin_state.json",
    "start_url": "__SHOPPING_ADMIN__/sales",
    "geolocation": None,
    "intent_template": "What is the top-{{n}} product in {{year}}",
    "instantiation_dict": {"n": 1, "year": 2022},
    "intent": "What is the top-1 product in 2022",
    "require_reset": False,
    "eval": {
        "eval_types": ["string_match"],
        "reference_answers": {"fuzzy_match": ["A band"]},
        "reference_url": "",
        "program_html": [],
        "string_note": "",
        "reference_answer_raw_annotation": "A band",
    },
    "intent_template_id": 279,
}


def test_screenspots_original_boxes_are_width_and_height_in_pixels():
    (row,) = read_original(SCREENSPOT, "imgs")
    sample = from_row(row)
    assert sample.screenshot == "imgs/web_3b0a.png"
    assert sample.bbox == (42, 1102, 239, 1172)
    assert sample.coordinates == (140.5, 1137)
    assert (sample.space, sample.target_type) == ("pixels", "text")
    assert sample.extra["screenspot"] == {"data_source": "shop", "novel_field": {"kept": True}}


def test_screenspots_hub_form_is_two_corners_as_fractions():
    (row,) = read_hub(HUB)
    sample = from_row(row)
    assert sample.bbox == (0.25, 0.5, 0.75, 0.6)
    assert (sample.space, sample.target_type) == ("0-1", "icon")
    assert "image" not in json.dumps(row["screenspot"])


def test_agentnet_gives_a_sample_for_each_action():
    rows = read_agentnet(AGENTNET, "images")
    click, drag, finish = (from_row(row) for row in rows)
    assert (click.screenshot, click.id) == ("images/step0.png", "20240927_1a2b/0")
    assert (click.instruction, click.coordinates) == ("Click the editor's icon", (0.018, 0.508))
    assert (drag.coordinates, drag.end_coordinates) == ((0.2, 0.3), (0.6, 0.3))
    assert (finish.action, finish.extra["status"]) == ("finish", "success")
    assert click.steps == drag.steps == 2


def test_agentnets_verdict_is_moved_to_the_step_it_speaks_of():
    """`last_step_correct` stands at the step after the one it judges."""
    first, second, _ = read_agentnet(AGENTNET)
    assert first["agentnet"]["correct"] is True
    assert second["agentnet"]["correct"] is None


def test_agentnet_loses_no_field():
    rows = read_agentnet(AGENTNET)
    about = rows[1]["agentnet"]
    assert about["task"] == {k: v for k, v in AGENTNET.items() if k not in ("traj", "task_id")}
    assert about["step"] == {"speed": 2}
    assert set(about["value"]) | {"action", "code"} == set(AGENTNET["traj"][1]["value"])


def test_aguvis_gives_a_sample_for_each_pair():
    click, typing = (from_row(row) for row in read_conversation(AGUVIS, "data"))
    assert (click.screenshot, click.instruction) == ("data/guienv/1.png", "Open the cart")
    assert (click.coordinates, click.bbox) == ((0.5, 0.25), (0.4, 0.2, 0.6, 0.3))
    assert (typing.action, typing.text, typing.space) == ("type", "shoes", None)
    assert click.extra["aguvis"]["row"] == {"source": "guienv"}
    assert click.extra["aguvis"]["turn"] == {"recipient": "os", "end_turn": True}
    assert click.extra["aguvis"]["before"] == [AGUVIS["conversations"][0]]
    assert typing.extra["aguvis"]["before"] == [AGUVIS["conversations"][4]]


def test_a_click_without_a_point_happens_where_the_step_before_left_the_pointer():
    codes = ("pyautogui.moveTo(.39, .55)", "pyautogui.click()", "pyautogui.scroll(-100)")
    steps = [
        {"index": i, "image": f"{i}.png", "value": {"action": "Go on", "code": code}}
        for i, code in enumerate(codes)
    ]
    rows = read_agentnet({"task_id": "t", "traj": steps})
    assert [row["action"] for row in rows] == ["move", "click", "scroll"]
    assert {tuple(row["coordinates"]) for row in rows} == {(0.39, 0.55)}
    assert {row["coordinate_space"] for row in rows} == {"0-1"}


def test_osworld_becomes_a_hud_task_that_names_what_it_needs():
    (row,) = read_osworld(OSWORLD)
    task = row["metadata"]["hud_task"]
    assert row["prompt"] == [{"role": "user", "content": "Export the table to a CSV file."}]
    assert (task["env"], task["slug"]) == ("osworld", "osworld-7f35355e-02a6")
    assert task["args"]["evaluator"] == OSWORLD["evaluator"]
    assert row["metadata"]["needs"] == {
        "env": "osworld",
        "snapshot": "libreoffice_calc",
        "apps": ["libreoffice_calc", "vs_code"],
        "setup": ["download", "open"],
        "graders": ["compare_csv", "exact_match"],
        "network": True,
    }
    kept = set(task["args"]) | set(row["metadata"]["osworld"]) | {"id", "instruction"}
    assert kept - {"task_id"} == set(OSWORLD)


def test_webarena_becomes_a_hud_task_that_names_what_it_needs():
    (row,) = read_config(WEBARENA)
    task = row["metadata"]["hud_task"]
    assert row["prompt"][0]["content"] == WEBARENA["intent"]
    assert (task["args"]["task_id"], task["args"]["start_url"]) == (7, "__SHOPPING_ADMIN__/sales")
    needs = row["metadata"]["needs"]
    assert needs["variables"] == ["SHOPPING_ADMIN"]
    assert (needs["files"], needs["model_judge"]) == (["./.auth/shopping_admin_state.json"], True)
    kept = set(task["args"]) | set(row["metadata"]["webarena"]) | {"intent"}
    assert kept == set(WEBARENA)


def test_preflight_names_everything_that_is_missing_and_how_to_mend_it(tmp_path):
    (osworld,), (webarena,) = read_osworld(OSWORLD), read_config(WEBARENA)
    lines = missing(osworld, variables={})
    assert any("env package" in line for line in lines)
    assert any("OSWORLD_SNAPSHOTS" in line for line in lines)
    lines = missing(webarena, variables={}, root=tmp_path)
    assert len(lines) == 4
    assert any(line.startswith("SHOPPING_ADMIN is not set") for line in lines)


def test_preflight_is_silent_when_nothing_is_missing(tmp_path):
    (row,) = read_config(WEBARENA)
    (tmp_path / "env.py").write_text("")
    (tmp_path / ".auth").mkdir()
    (tmp_path / ".auth" / "shopping_admin_state.json").write_text("{}")
    variables = {"SHOPPING_ADMIN": "http://localhost:1", "OPENAI_API_KEY": "k"}
    options = {"env_packages": {"webarena": str(tmp_path)}, "root": tmp_path}
    assert missing(row, variables=variables, **options) == []
    assert missing(row, variables={"OPENAI_API_KEY": "k"}, **options) == [
        "SHOPPING_ADMIN is not set: the address of that site, e.g. http://host:port"
    ]


@pytest.mark.parametrize(
    ("code", "actions"),
    [
        ("pyautogui.doubleClick(x=0.1, y=0.2)", [{"action": "double_click"}]),
        ("pyautogui.click(0.1, 0.2, clicks=2)", [{"action": "double_click"}]),
        ("pyautogui.tripleClick(x=0.1, y=0.2)", [{"action": "triple_click"}]),
        ("computer.triple_click(x=0.1, y=0.2)", [{"action": "triple_click"}]),
        ("pyautogui.rightClick(x=0.1, y=0.2)", [{"action": "click", "button": "right"}]),
        ("pyautogui.click(x=0.1, y=0.2, button='right')", [{"action": "click", "button": "right"}]),
        ("pyautogui.moveTo((0.1, 0.2))", [{"action": "move", "coordinates": [0.1, 0.2]}]),
        ("import pyautogui\npyautogui.press('enter')", [{"action": "key", "keys": ["enter"]}]),
        ("pyautogui.press(keys=['tab'], presses=2)", [{"action": "key", "keys": ["tab", "tab"]}]),
        ("pyautogui.hotkey('ctrl', 'c')", [{"action": "key", "keys": ["ctrl+c"]}]),
        ("pyautogui.hotkey(['ctrl', 'c'])", [{"action": "key", "keys": ["ctrl+c"]}]),
        ("pyautogui.scroll(-5)", [{"action": "scroll", "direction": "down", "amount": 5}]),
        ("pyautogui.hscroll(2)", [{"action": "scroll", "direction": "right", "amount": 2}]),
        ("pyautogui.scroll(-5, x=0.1, y=0.2)", [{"action": "scroll", "coordinates": [0.1, 0.2]}]),
        ("pyautogui.typewrite('hi', interval=0.1)", [{"action": "type", "interval": 0.1}]),
        ("time.sleep(2)", [{"action": "wait", "seconds": 2}]),
        ("computer.wait()", [{"action": "wait"}]),
        ("terminate('success')", [{"action": "finish", "status": "success"}]),
        ("answer('42')", [{"action": "finish", "answer": "42"}]),
    ],
)
def test_pyautogui_lines(code, actions):
    found = parse_actions(code)
    assert len(found) == len(actions)
    for ours, expected in zip(found, actions, strict=True):
        assert expected.items() <= ours.items()


def click(x, y, **others):
    return {"action": "click", "coordinates": [x, y]} | others


@pytest.mark.parametrize(
    ("code", "actions"),
    [
        ("click(.5, .5, 2)", [click(0.5, 0.5, action="double_click")]),
        ("click(.5, .5, 3)", [click(0.5, 0.5, action="triple_click")]),
        ("click(.5, .5, 1, 0.0, 'right')", [click(0.5, 0.5, button="right", interval=0.0)]),
        ("click(5, 6, 1, 0, pyautogui.MIDDLE)", [click(5, 6, button="middle", interval=0)]),
        ("click(5, 6, button=3)", [click(5, 6, button="right")]),
        ("click(5, 6, button='SECONDARY')", [click(5, 6, button="right")]),
        ("click(5, 6, 1, 0, 'primary', 0.5)", [click(5, 6, interval=0, duration=0.5)]),
        ("leftClick(5, 6, 0.1)", [click(5, 6, interval=0.1)]),
        ("rightClick(5, 6, 0.1, 0.2)", [click(5, 6, button="right", interval=0.1, duration=0.2)]),
        (
            "doubleClick(.2, .3, .1, 'right')",
            [click(0.2, 0.3, action="double_click", button="right", interval=0.1)],
        ),
        ("tripleClick(2, 3, 0, 'middle')", [click(2, 3, action="triple_click", button="middle")]),
        ("click((3, 4))", [click(3, 4)]),
        ("click((10, 20, 30, 40))", [click(25, 40)]),
        (
            "moveTo(5, 6, 2, pyautogui.easeInOutQuad)",
            [{"action": "move", "coordinates": [5, 6], "duration": 2, "tween": "easeInOutQuad"}],
        ),
        ("moveTo(x=100, y=801)\nscroll(-5)", [{"action": "scroll", "coordinates": [100, 801]}]),
        ("click(7, 8)\nscroll(3)", [click(7, 8), {"action": "scroll", "coordinates": [7, 8]}]),
        (
            "moveTo(390, 550); click(); scroll(-100)",
            [click(390, 550), {"action": "scroll", "coordinates": [390, 550], "amount": 100}],
        ),
        ("moveTo(5, 6); doubleClick()", [click(5, 6, action="double_click")]),
        ("moveTo(5, 6); click(x=9)", [{"action": "move"}, click(9, 6)]),
        ("moveTo(5, 6); move(10, -2); click()", [{"action": "move"}, click(15, 4)]),
        (
            "moveTo(1, 2)\ndragTo(30, 40, 0.5, button='left')",
            [{"action": "drag", "coordinates": [1, 2], "end_coordinates": [30, 40]}],
        ),
        (
            "click(1, 2)\ndragTo(3, 4, .5, pyautogui.linear, 'right')",
            [click(1, 2), {"action": "drag", "coordinates": [1, 2], "button": "right"}],
        ),
        ("moveTo(1, 2); dragRel(3, 4)", [{"action": "drag", "end_coordinates": [4, 6]}]),
        (
            "mouseDown(1, 2); moveTo(3, 4); mouseUp()",
            [{"action": "drag", "coordinates": [1, 2], "end_coordinates": [3, 4]}],
        ),
        ("mouseDown(1, 2, 'right'); mouseUp()", [click(1, 2, button="right")]),
        ("scroll(-5, 1, 2)", [{"action": "scroll", "direction": "down", "coordinates": [1, 2]}]),
        ("vscroll(4)", [{"action": "scroll", "direction": "up", "amount": 4}]),
        ("press('tab', 3, 0.1)", [{"action": "key", "keys": ["tab"] * 3, "interval": 0.1}]),
        ("press(['a', 'b'], 2)", [{"action": "key", "keys": ["a", "b", "a", "b"]}]),
        ("write('hi', 0.2)", [{"action": "type", "text": "hi", "interval": 0.2}]),
        ("typewrite(['a', 'left'])", [{"action": "key", "keys": ["a", "left"]}]),
        ("shortcut('ctrl', 'c', interval=.1)", [{"action": "key", "keys": ["ctrl+c"]}]),
        ("keyDown('ctrl'); press('c'); keyUp('ctrl')", [{"action": "key", "keys": ["ctrl+c"]}]),
        (
            "keyDown('ctrl'); keyDown('c'); keyUp('c'); keyUp('ctrl')",
            [{"action": "key", "keys": ["ctrl+c"]}],
        ),
        ("keyDown('shift'); keyUp('shift')", [{"action": "key", "keys": ["shift"]}]),
        ("pyautogui.sleep(1.5)", [{"action": "wait", "seconds": 1.5}]),
    ],
)
def test_arguments_mean_what_pyautoguis_signatures_say(code, actions):
    """asweigart/pyautogui#920, legacy-use/legacy-use#167."""
    found = parse_actions(code)
    assert [action["action"] for action in found] == [action["action"] for action in actions]
    for ours, expected in zip(found, actions, strict=True):
        assert expected.items() <= ours.items()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("scroll(0)", "nothing"),
        ("hscroll(0.0, 5, 6)", "nothing"),
        ("scroll(True)", "a number"),
        ("click(5, 6, clicks=4)", "clicks=4"),
        ("click(5, 6, 0)", "clicks=0"),
        ("click(5, 6, True)", "clicks=True"),
        ("click(5, 6, button='wheel')", "left, middle or right"),
        ("click(5, 6, button=7)", "left, middle or right"),
        ("click('button.png')", "two numbers"),
        ("click((1, 2), 3)", "one pair"),
        ("click(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)", "10 arguments"),
        ("click(1, 2, x=3)", "x twice"),
        ("click(**{'x': 1})", "unpacks"),
        ("click()", "no x and y"),
        ("click(x=5)", "no x and y"),
        ("move(3, 4)", "nobody knows"),
        ("mouseDown(1, 2)", "button is held|held"),
        ("mouseUp(1, 2)", "no line has pressed"),
        ("keyDown('shift'); click(1, 2); keyUp('shift')", "shift is held"),
        ("keyDown('shift')", "shift is held"),
        ("keyUp('shift')", "no line has pressed"),
        ("press('a', 1.5)", "whole number"),
        ("press('a', True)", "whole number"),
        ("time.sleep('long')", "a number"),
        ("click(1e400, 2)", "two numbers"),
    ],
)
def test_what_a_call_cannot_mean_is_said(code, why):
    with pytest.raises(LabError, match=why):
        parse_actions(code)


@pytest.mark.parametrize(
    "code",
    [
        "x = 3",
        "pyautogui.click(",
        "pyautogui.click()",
        "pyautogui.click(x=a, y=b)",
        "mobile.home()",
        "__import__('os').system('ls')",
        "pyautogui.press(7)",
        "pyautogui.press('a', presses=-1)",
        "pyautogui.scroll('far')",
        "(" * 500,
    ],
)
def test_code_that_is_no_known_action_is_an_error_for_people(code):
    """The code is parsed, never run."""
    with pytest.raises(LabError):
        parse_actions(code)


FILES = {
    "screenspot": SCREENSPOT,
    "screenspot-v2": SCREENSPOT,
    "screenspot-hf": HUB,
    "agentnet": AGENTNET,
    "aguvis": AGUVIS,
    "osworld": OSWORLD,
    "webarena": WEBARENA,
}


@pytest.mark.parametrize("name", list(readers()))
@pytest.mark.parametrize("form", ["array", "lines", "pretty"])
def test_files_as_arrays_lines_or_one_object(tmp_path, name, form):
    row, path = FILES[name], tmp_path / "public"
    text = {
        "array": json.dumps([row, {"broken": 1}], indent=2),
        "lines": json.dumps(row) + "\n\n" + json.dumps({"broken": 1}) + "\n",
        "pretty": json.dumps(row, indent=2),
    }[form]
    path.write_text(text)
    done = convert_file(name, path, tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == done.rows > 0
    skipped = Path(done.skipped_file).read_text().splitlines()
    assert done.skipped == len(skipped) == (form != "pretty")
    assert form == "pretty" or json.loads(skipped[0])["row"] == {"broken": 1}


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize("form", ["array", "lines", "pretty"])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path, form):
    """pydantic/pydantic-ai#8316: Windows' editors put one before the first line."""
    text = {
        "array": json.dumps([SCREENSPOT]),
        "lines": json.dumps(SCREENSPOT) + "\r\n" + json.dumps(SCREENSPOT),
        "pretty": json.dumps(SCREENSPOT, indent=2),
    }[form]
    (tmp_path / "public").write_bytes(BOM + text.encode())
    done = convert_file("screenspot", tmp_path / "public", tmp_path / "rows.jsonl")
    assert (done.rows, done.skipped) == (2 if form == "lines" else 1, 0)


def test_a_line_that_is_no_json_is_set_aside_and_the_others_are_read(tmp_path):
    path = tmp_path / "public"
    path.write_text(f"{json.dumps(SCREENSPOT)}\n{{broken\n{json.dumps(SCREENSPOT)}\n")
    done = convert_file("screenspot", path, tmp_path / "rows.jsonl")
    assert (done.rows, done.skipped) == (2, 1)
    aside = json.loads(Path(done.skipped_file).read_text())
    assert aside["number"] == 2
    assert "{broken" in aside["reason"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("[]".encode("utf-16"), "UTF-16"),
        (b'{"a": "\xe9"}', "byte 7 is 0xe9"),
        (b"[1,", "no JSON array"),
    ],
)
def test_a_file_that_is_no_json_in_utf8_is_one_error(tmp_path, data, why):
    (tmp_path / "public").write_bytes(data)
    with pytest.raises(LabError, match=why):
        convert_file("screenspot", tmp_path / "public", tmp_path / "rows.jsonl")
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_converted_file_passes_the_quality_filter(shots):
    public = [
        {"img_filename": f"{n}.png", "bbox": [10, 20, 80, 30], "instruction": f"Open item {n}"}
        | {"data_type": "icon", "data_source": "windows"}
        for n in "abc"
    ]
    (shots / "screenspot_desktop_v2.json").write_text(json.dumps(public))
    convert_file("screenspot-v2", shots / "screenspot_desktop_v2.json", shots / "rows.jsonl")
    report = check_file(shots / "rows.jsonl", Rules(space=None))
    assert (report.accepted, report.reasons) == (3, {})
    assert Image.open(shots / "a.png").size == (1024, 768)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def places(value, path=()):
    """Every place in a JSON value, as a path."""
    yield path
    listed = enumerate(value) if isinstance(value, list) else ()
    for key, inner in value.items() if isinstance(value, dict) else listed:
        yield from places(inner, (*path, key))


def replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from(sorted(FILES)))
def test_one_field_of_the_wrong_kind_is_an_error_for_people_or_no_error(data, name):
    """A hundred thousand rows must not stop at one."""
    path = data.draw(st.sampled_from([p for p in places(FILES[name]) if p]))
    row = replaced(FILES[name], path, data.draw(json_values))
    with contextlib.suppress(LabError):
        assert json.dumps(readers()[name](row, ""))


def test_an_unknown_format_lists_the_known_ones(tmp_path):
    with pytest.raises(LabError, match="screenspot"):
        list(read_public("coco", tmp_path))


def test_every_format_says_the_licence_of_its_public_rows():
    assert licences().keys() == readers().keys()
    assert licences()["agentnet"] == "MIT"
