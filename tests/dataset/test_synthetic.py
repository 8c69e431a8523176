"""Synthetic samples: exact boxes by construction, one meaning each, the same for the same seed."""

import hashlib

import pytest

from cua_lab.dataset.data_checks import Rules
from cua_lab.dataset.quality import judge_rows
from cua_lab.dataset.synthetic import targets_samples, todo_samples
from cua_lab.dataset.web_pages import page_samples
from cua_lab.desktop import app as masks
from cua_lab.desktop.apps.targets import Targets
from cua_lab.errors import LabError

LAX = Rules(min_size=(64, 64))


def test_the_quality_filter_has_nothing_to_say_against_them(tmp_path):
    samples = [*targets_samples(tmp_path, 30), *todo_samples(tmp_path, 12)]
    verdicts = judge_rows([sample.to_row() for sample in samples], LAX, root=tmp_path)
    problems = [r.reason for v in verdicts for r in v.reasons if "duplicate" not in r.reason]
    assert problems == []


def test_a_click_on_a_corner_of_the_box_is_a_hit_in_the_app_and_one_beyond_is_not():
    app = Targets(1, width=128, height=128)
    app.reset(5)
    left, top, right, bottom = app.target.box
    for x, y, hit in [(left, top, True), (right - 1, bottom - 1, True), (right, bottom, False)]:
        app.reset(5)
        app.pointer(x, y, masks.LEFT)
        assert app.hit is hit


def test_the_same_seed_gives_the_same_files(tmp_path):
    def digest(folder, seed):
        samples = list(targets_samples(folder, 6, seed=seed, sizes=((128, 128), (256, 192))))
        rows = repr([sample.to_row() for sample in samples]).replace(f"-{seed}-", "-")
        files = [(folder / sample.screenshot).read_bytes() for sample in samples]
        return hashlib.sha256(b"".join(files) + rows.encode()).hexdigest()

    once = digest(tmp_path / "a", 1)
    assert once == digest(tmp_path / "b", 1)
    assert once != digest(tmp_path / "c", 2)


def test_an_instruction_names_the_target_and_nothing_else(tmp_path):
    for sample in targets_samples(tmp_path, 12, levels=(2, 3)):
        names = [element.content for element in sample.elements]
        assert len(set(names)) == len(names)
        word = names[0].split()[0]
        assert word in sample.instruction


def dom(name: str, x: float, y: float = 10, **changes) -> dict:
    box = {"tag": "button", "role": "button", "name": name, "text": name}
    return box | {"x": x, "y": y, "width": 60, "height": 20} | changes


def test_dom_boxes_become_pixels_of_the_screenshot():
    """CSS pixels times the device's ratio; the last pixel belongs to the box."""
    (sample,) = page_samples([dom("Save", 10)], screenshot="p.png", size=(800, 600), ratio=2.0)
    assert sample.bbox == (20, 20, 139, 59)
    assert sample.box_unit == (20 / 799, 20 / 599, 139 / 799, 59 / 599)
    assert "Save" in sample.instruction
    assert sample.target_type == "text"


def test_names_that_two_boxes_bear_or_none_are_not_asked_for():
    boxes = [dom("Save", 10), dom("save ", 100), dom("", 200), dom("Quit", 300)]
    samples = list(page_samples(boxes, screenshot="p.png", size=(800, 600)))
    assert [sample.instruction.count("Quit") for sample in samples] == [1]
    assert len(samples[0].elements) == 4


def test_boxes_are_cut_at_the_screens_edge_and_dropped_outside():
    boxes = [dom("Half", -30), dom("Gone", 900)]
    (sample,) = page_samples(boxes, screenshot="p.png", size=(800, 600))
    assert sample.bbox == (0, 10, 29, 29)


def test_a_box_without_numbers_is_refused():
    with pytest.raises(LabError, match="DOM box"):
        list(page_samples([dom("Save", None)], screenshot="p.png", size=(800, 600)))
