"""The picture wall draws every row, the broken ones above all."""

import io

import pytest
from PIL import Image

from cua_lab.dataset.data_checks import Rules
from cua_lab.dataset.quality import Verdict, judge_rows
from cua_lab.viz.picture_wall import picture_wall


def test_every_card_is_drawn_even_without_picture_or_row(shots, good_row):
    rows = [
        good_row,
        good_row | {"screenshot": "gone.png"},
        good_row | {"bbox": [0, 0, 50, 50], "instruction": "Costs $5 and $6"},
        good_row | {"coordinate_space": "percent", "instruction": None},
        [1, 2],
        None,
    ]
    verdicts = list(judge_rows(rows, Rules(), root=shots))
    good: list[Verdict] = [v for v in verdicts if v.accepted]
    bad = [v for v in verdicts if not v.accepted]
    figure = picture_wall(good, bad, root=shots)
    figure.savefig(out := io.BytesIO(), format="png", dpi=50)
    assert out.getvalue().startswith(b"\x89PNG")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[0] == "Open the settings"
    assert "Costs" in " ".join(titles)


def test_a_sideways_screenshot_is_shown_upright_with_its_mark_where_a_click_would_land(
    tmp_path, good_row
):
    """sgl-project/sglang#33464: a click in the middle was drawn, and taught, at the edge."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.radial_gradient("L").resize((900, 1600)).save(tmp_path / "a.png", exif=exif)
    row = good_row | {"coordinates": [800, 450], "bbox": [700, 400, 900, 500]}
    (verdict,) = judge_rows([row], Rules(), root=tmp_path, decode=True)
    assert verdict.accepted, verdict.reasons
    (beyond,) = judge_rows([row | {"coordinates": [450, 1200], "bbox": None}], root=tmp_path)
    assert not beyond.accepted
    axes = picture_wall([verdict], [], root=tmp_path).axes[0]
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 1600), (900, 0))
    assert [line.get_xdata()[0] for line in axes.lines] == pytest.approx([800, 800], abs=1)


def test_each_reason_comes_before_any_comes_twice(shots, good_row):
    rows = [good_row | {"coordinates": [1]}] * 5 + [good_row | {"bbox": [0, 0, 5, 5]}]
    verdicts = list(judge_rows(rows, root=shots))
    figure = picture_wall([], verdicts, root=shots, columns=2, rows=1)
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert any("outside box" in label for label in labels)
