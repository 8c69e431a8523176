"""What the article's filter does to samples that ours accepts, and the other way round."""

from cua_lab.dataset.article_filter import compare
from cua_lab.dataset.data_checks import Rules

from .conftest import draw_screen


def test_the_articles_filter_crashes_rejects_and_overlooks(shots):
    draw_screen(shots / "tiny.png", size=(320, 200))
    crowd = [{"type": "icon", "bbox": [0.4, 0.4, 0.6, 0.6], "interactivity": True, "content": "x"}]
    base = {"screenshot": "a.png", "instruction": "Save the file"}
    rows = [
        base | {"action": "wait"},
        base | {"action": "finish", "coordinates": None, "instruction": "Stop now"},
        base | {"action": "type", "text": "x", "coordinates": [], "instruction": "Type x"},
        base | {"action": "click", "coordinates": [0.5, 0.5], "screenshot": "tiny.png"},
        base | {"action": "click", "coordinates": [0.5, 0.5], "elements": crowd * 500},
        base | {"action": "click", "coordinates": [500, 400], "coordinate_space": "pixels"},
    ]
    rows = [row | {"instruction": f"{row['instruction']}, {n}"} for n, row in enumerate(rows)]
    found = compare(rows, Rules(space="0-1"), root=shots)
    assert [(one.article, one.ours) for one in found] == [
        ("crashes: KeyError", "accepts"),
        ("crashes: TypeError", "accepts"),
        ("rejects", "accepts"),
        ("accepts", "screenshot_small"),
        ("accepts", "elements_many"),
        ("rejects", "accepts"),
    ]
