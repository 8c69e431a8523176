"""The quality filter: every bad row is explained, none stops the run."""

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from cua_lab.dataset.data_checks import REASONS, Rules
from cua_lab.dataset.quality import QualityFilter, check_file, judge_rows
from cua_lab.errors import LabError
from cua_lab.viz.quality_plot import write_reasons

from .conftest import draw_screen


def reasons_of(row, root, rules=None) -> set[str]:
    (verdict,) = judge_rows([row], rules, root=root)
    return {reason.reason for reason in verdict.reasons}


def test_a_good_row_is_accepted(shots, good_row):
    assert reasons_of(good_row, shots) == set()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"screenshot": None}, "screenshot_missing"),
        ({"screenshot": "nowhere.png"}, "screenshot_missing"),
        ({"screenshot": "bad\x00name.png"}, "screenshot_missing"),
        ({"image_size": [640, 480]}, "image_size_wrong"),
        ({"instruction": ""}, "instruction_missing"),
        ({"instruction": 7}, "instruction_missing"),
        ({"instruction": "ok"}, "instruction_short"),
        ({"instruction": "word " * 200}, "instruction_long"),
        ({"instruction": "打开系统设置"}, "instruction_language"),
        ({"instruction": "Click at (412, 87)"}, "instruction_leak"),
        ({"instruction": "Click at 0.40, 0.113"}, "instruction_leak"),
        ({"instruction": "pyautogui.click(5, 6)"}, "instruction_leak"),
        ({"action": None}, "action_missing"),
        ({"action": "hover"}, "action_unknown"),
        ({"action": ["click"]}, "action_unknown"),
        ({"action": "type", "coordinates": None}, "argument_missing"),
        ({"action": "key", "keys": []}, "argument_missing"),
        ({"action": "scroll", "direction": "sideways"}, "argument_missing"),
        ({"action": "drag"}, "argument_missing"),
        ({"coordinates": None}, "coordinates_missing"),
        ({"coordinates": [1]}, "coordinates_invalid"),
        ({"coordinates": ["412", "87"]}, "coordinates_invalid"),
        ({"coordinates": [True, False]}, "coordinates_invalid"),
        ({"coordinates": [math.nan, 87]}, "coordinates_invalid"),
        ({"coordinates": [math.inf, 87]}, "coordinates_invalid"),
        ({"coordinates": [2000, 87]}, "coordinates_range"),
        ({"coordinates": [-1, 87]}, "coordinates_range"),
        ({"coordinate_space": "percent"}, "space_unknown"),
        ({"coordinate_space": None}, "space_undeclared"),
        ({"bbox": [430, 80, 400, 95]}, "box_invalid"),
        ({"bbox": [400, 80, 430]}, "box_invalid"),
        ({"bbox": [400, 80, 4300, 95]}, "box_range"),
        ({"bbox": [0, 0, 5, 5]}, "point_outside_box"),
        ({"elements": "many"}, "elements_invalid"),
        ({"elements": [{"bbox": [0, 0, 9, 9]}]}, "elements_invalid"),
    ],
)
def test_each_fault_is_named(shots, good_row, change, reason):
    assert reason in reasons_of(good_row | change, shots)


@pytest.mark.parametrize(
    "row",
    [
        {"action": "wait"},
        {"action": "finish", "coordinates": None},
        {"action": "type", "text": "hello"},
        {"action": "key", "keys": ["ctrl+s"]},
        {"action": "press", "keys": "enter"},
        {"action": "scroll", "direction": "down"},
        {"action": {"type": "click", "coordinates": [0.5, 0.5]}, "coordinate_space": "0-1"},
        {"action": "drag", "coordinates": [1, 2], "end_coordinates": {"x": 9, "y": 9}},
    ],
)
def test_actions_without_a_point_are_good_samples(shots, row):
    """The article's filter throws them away, so its policy never learns to type or to stop."""
    base = {"screenshot": "a.png", "instruction": "Save the file"}
    assert reasons_of(base | row, shots, Rules(space="pixels")) == set()


def test_all_reasons_of_a_row_are_given_at_once(shots):
    found = reasons_of({"screenshot": "gone.png", "action": "click", "coordinates": [1]}, shots)
    assert found >= {"screenshot_missing", "instruction_missing", "coordinates_invalid"}


def test_small_blank_and_truncated_screens_are_rejected(shots, good_row):
    draw_screen(shots / "small.png", size=(800, 600))
    Image.new("RGB", (1024, 768), "white").save(shots / "blank.png")
    whole = (shots / "b.png").read_bytes()
    (shots / "cut.png").write_bytes(whole[: len(whole) // 2])
    (shots / "text.png").write_text("not an image")
    assert "screenshot_small" in reasons_of(good_row | {"screenshot": "small.png"}, shots)
    assert "screenshot_blank" in reasons_of(good_row | {"screenshot": "blank.png"}, shots)
    assert "screenshot_broken" in reasons_of(good_row | {"screenshot": "cut.png"}, shots)
    assert "screenshot_broken" in reasons_of(good_row | {"screenshot": "text.png"}, shots)
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


def test_smaller_screens_pass_when_the_user_says_so(shots, good_row):
    draw_screen(shots / "small.png", size=(800, 600))
    row = good_row | {"screenshot": "small.png"}
    assert reasons_of(row, shots, Rules(min_size=(640, 480))) == set()


def test_element_count_and_containment(shots, good_row):
    """At most 200 elements; without a box one of them must lie under the point."""
    del good_row["bbox"]
    there = {"type": "icon", "bbox": [0.39, 0.1, 0.42, 0.13], "interactivity": True, "content": "x"}
    away = there | {"bbox": [0.8, 0.8, 0.9, 0.9]}
    assert reasons_of(good_row | {"elements": [there]}, shots) == set()
    assert reasons_of(good_row | {"elements": [away]}, shots) == {"point_outside_elements"}
    assert reasons_of(good_row | {"elements": [there] * 201}, shots) == {"elements_many"}
    assert reasons_of(good_row | {"elements": [there] * 200}, shots) == set()


def test_duplicates_are_found_by_pixels_not_by_name(shots, good_row):
    """A re-encoded copy under another name is the same picture."""
    Image.open(shots / "a.png").save(shots / "copy.bmp")
    other = good_row | {"screenshot": "b.png"}
    copy = good_row | {"screenshot": "copy.bmp", "instruction": "  open the SETTINGS. "}
    verdicts = list(judge_rows([good_row, other, copy], root=shots))
    assert [v.accepted for v in verdicts] == [True, True, False]
    assert verdicts[2].reasons[0].reason == "duplicate"
    assert verdicts[2].reasons[0].detail == "of line 1"


def test_near_duplicates_share_picture_instruction_and_target(shots, good_row):
    image = Image.open(shots / "a.png").convert("RGB")
    image.putpixel((500, 700), (0, 0, 0))
    image.save(shots / "touched.png")
    near = good_row | {"screenshot": "touched.png", "coordinates": [413, 88]}
    elsewhere = near | {"coordinates": [800, 600], "bbox": [790, 590, 810, 610]}
    verdicts = list(judge_rows([good_row, near, elsewhere], root=shots))
    assert [reason.reason for reason in verdicts[1].reasons] == ["near_duplicate"]
    assert verdicts[2].accepted


def test_a_rejected_row_does_not_make_its_good_twin_a_duplicate(shots, good_row):
    bad = good_row | {"coordinates": [1]}
    verdicts = list(judge_rows([bad, good_row], root=shots))
    assert [v.accepted for v in verdicts] == [False, True]


def write(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def test_the_files_keep_order_bytes_and_reasons(shots, good_row):
    odd = json.dumps(good_row | {"screenshot": "b.png", "note": "é"}, indent=None, sort_keys=True)
    lines = [
        json.dumps(good_row).encode(),
        b"{broken",
        b"",
        b"\xff\xfe not utf-8",
        b"[1, 2]",
        b"[" * 100_000,
        json.dumps(good_row | {"coordinates": [math.nan, 1]}).encode(),
        b'{"screenshot": "a.png", "instruction": "\\ud800", "action": "click"}',
        odd.encode(),
    ]
    report = check_file(write(shots / "rows.jsonl", lines))
    accepted = Path(report.files["accepted"]).read_bytes().splitlines()
    assert accepted == [lines[0], lines[8]]
    rejected = [json.loads(x) for x in Path(report.files["rejected"]).read_bytes().splitlines()]
    assert [r["line"] for r in rejected] == [2, 4, 5, 6, 7, 8]
    assert all(reason["reason"] in REASONS for r in rejected for reason in r["reasons"])
    assert rejected[2]["row"] == [1, 2]
    assert rejected[1]["text"].startswith("\\xff")
    assert (report.rows, report.accepted, report.rejected) == (8, 2, 6)
    assert json.loads(Path(report.files["report"]).read_text())["reasons"] == report.reasons
    assert write_reasons(report).read_bytes().startswith(b"\x89PNG")


def test_nothing_is_left_behind_when_the_run_is_stopped(shots, good_row, monkeypatch):
    source = write(shots / "rows.jsonl", [json.dumps(good_row).encode()] * 3)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(QualityFilter, "judge_line", interrupted)
    with pytest.raises(KeyboardInterrupt):
        check_file(source)
    assert list((shots / "rows.checked").iterdir()) == []


def test_an_overlong_line_is_skipped_and_the_next_one_read(shots, good_row, monkeypatch):
    from cua_lab.dataset import jsonl

    monkeypatch.setattr(jsonl.bounded_lines, "__defaults__", (600,))
    long = json.dumps(good_row | {"note": "x" * 5000}).encode()
    report = check_file(write(shots / "rows.jsonl", [long, json.dumps(good_row).encode()]))
    assert report.reasons == {"row_too_long": 1}
    assert report.accepted == 1


def points(count: int, limit: tuple[float, float]) -> list[list[float]]:
    rng = random.Random(3)
    return [[rng.uniform(0, limit[0]), rng.uniform(0, limit[1])] for _ in range(count)]


@pytest.mark.parametrize(
    ("declared", "limit", "looks"),
    [
        ("pixels", (1, 1), "0-1"),
        ("0-1000", (1, 1), "0-1"),
        ("0-1", (1000, 1000), None),
        ("0-1000", (1024, 768), "pixels"),
        ("pixels", (1000, 1000), "0-1000"),
        ("pixels", (1024, 768), None),
        ("0-1", (1, 1), None),
        ("0-1000", (1000, 1000), None),
    ],
)
def test_a_file_in_another_space_is_reported(shots, good_row, declared, limit, looks):
    """In 0-1000 a point (0.4, 0.6) is legal: only the whole file shows that it means 0-1."""
    del good_row["bbox"]
    del good_row["coordinate_space"]
    with QualityFilter(Rules(space=declared), root=shots, decode=False) as quality:
        for line, point in enumerate(points(100, limit)):
            quality.judge(good_row | {"coordinates": point, "instruction": f"Press {line}x"}, line)
        mismatch = quality.evidence.mismatch()
    if looks is not None:
        assert f"look like {looks}" in mismatch
    elif declared == "0-1" and limit[0] > 1:
        assert mismatch is not None
    else:
        assert mismatch is None


def test_a_file_that_is_one_array_is_refused_with_the_way_out(shots):
    path = shots / "array.jsonl"
    path.write_text('[{"a": 1}]')
    with pytest.raises(LabError, match="data convert"):
        check_file(path)


def test_without_decoding_the_report_says_what_was_not_looked_for(shots, good_row):
    report = check_file(write(shots / "rows.jsonl", [json.dumps(good_row).encode()]), decode=False)
    assert report.not_checked == ("screenshot_blank", "near_duplicate")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ["screenshot", "instruction", "action", "coordinates", "end_coordinates", "text", "keys"]
FIELDS += ["direction", "bbox", "elements", "image_size", "coordinate_space", "type", "x"]


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.dictionaries(st.sampled_from(FIELDS), json_values), st.sampled_from(["click", "drag", "key"])
)
def test_no_row_whatever_makes_the_filter_throw(shots, row, action):
    with QualityFilter(Rules(space="0-1000"), root=shots, decode=False) as quality:
        quality.judge(row, 1)
        quality.judge({"screenshot": "a.png", "action": action, **row}, 2)
        quality.judge({"screenshot": "a.png", "action": row}, 3)


@given(st.binary(max_size=60))
def test_no_line_whatever_makes_the_filter_throw(raw):
    with QualityFilter(decode=False) as quality:
        quality.judge_line(raw, 1)
