"""Grounding evaluation: honest counts, honest intervals, a page that stands alone."""

import json
import math

import pytest

from cua_lab.dataset.evaluation import evaluate_grounding
from cua_lab.dataset.grounding import from_row
from cua_lab.viz.grounding_page import grounding_page


def sample(n: int, **changes):
    row = {
        "screenshot": f"{n}.png",
        "instruction": f"Open <item> {n}",
        "action": "click",
        "coordinates": [0.5, 0.5],
        "bbox": [0.4, 0.4, 0.6, 0.6],
        "coordinate_space": "0-1",
        "target_type": "icon" if n % 2 else "text",
        "id": str(n),
    }
    return from_row(row | changes)


def test_hits_misses_invalid_and_unmeasured_are_told_apart():
    samples = [sample(n) for n in range(4)] + [sample(9, bbox=None)]
    answers = {"0": (0.5, 0.5), "1": (0.9, 0.5), "2": None, "3": (math.nan, 0.5)}
    report = evaluate_grounding(samples, lambda s: answers[s.id])
    assert (report.overall.hits, report.overall.count) == (1, 4)
    assert (report.invalid, report.unmeasured) == (2, 1)
    assert report.by_type["text"].hits == 1
    assert report.by_type["icon"].count == 2


def test_edges_of_the_box_count_as_inside():
    report = evaluate_grounding([sample(0)], lambda _: (0.4, 0.6))
    assert report.overall.hits == 1


def test_groups_follow_difficulty_and_size():
    small = sample(1, bbox=[0.5, 0.5, 0.51, 0.51], coordinates=[0.505, 0.505])
    report = evaluate_grounding([sample(0), small], lambda s: s.point_unit)
    assert {name: rate.count for name, rate in report.by_difficulty.items()} == {
        "easy": 1,
        "medium": 1,
    }
    assert list(report.by_size) == ["large, 1% and more", "small, below 0.1%"]


def test_a_fault_of_the_predictor_is_not_a_miss():
    def broken(_):
        raise RuntimeError("the engine is gone")

    with pytest.raises(RuntimeError, match="engine is gone"):
        evaluate_grounding([sample(0)], broken)


def test_the_report_is_json_and_a_page_without_outside_parts():
    report = evaluate_grounding([sample(n) for n in range(3)], lambda _: (0.0, 0.0))
    assert json.loads(json.dumps(report.to_json()))["overall"]["hits"] == 0
    html = grounding_page(report, "Clicks")
    assert "Open &lt;item&gt; 0" in html
    assert "http://" not in html
    assert "https://" not in html
    assert grounding_page(evaluate_grounding([], lambda _: None))


def test_nothing_in_the_page_becomes_markup_and_its_bars_need_no_inline_style():
    """The page's policy allows one style sheet: an inline width was never applied."""
    hostile = "<img src=x onerror=alert(1)>'\"&\u202e\ud83d"
    samples = [sample(0, instruction=hostile, screenshot=hostile, target_type=hostile)]
    html = grounding_page(evaluate_grounding(samples, lambda _: (0.0, 0.0)), hostile)
    html.encode("utf-8")
    assert "<img" not in html
    assert html.count("&lt;img src=x onerror=alert(1)&gt;") >= 4
    assert "style=" not in html
    assert "\u202e" not in html.split("<h2>Misses")[1]
