"""Concept pictures name parts that exist and say in words what they show."""

import numpy as np
import pytest

from cua_lab.lessons.chain import Box, chain
from cua_lab.lessons.clip_plot import clip_figure, clipped_losses
from cua_lab.lessons.concepts import browser_parts, grpo_loop, id_path, tool_stages
from cua_lab.lessons.turn_bars import turn_figure
from cua_lab.stitching.turn import Turn


@pytest.mark.parametrize("picture", [id_path, tool_stages, browser_parts, grpo_loop])
def test_a_path_is_drawn_and_told(picture) -> None:
    figure = picture()
    assert figure._repr_png_().startswith(b"\x89PNG")
    (axes,) = figure.axes
    titles = [t.get_text() for t in axes.texts if t.get_weight() == "bold"]
    assert len(titles) >= 4
    assert all(title.split()[-1].lower() in figure.alt.lower() for title in titles)


def test_a_chain_without_a_way_back_has_one_arrow_for_each_step() -> None:
    figure = chain([Box("a", ""), Box("b", ""), Box("c", "")], there=["x", "y"], alt="a, b, c")
    labels = [t.get_text() for t in figure.axes[0].texts]
    assert labels.count("x") == labels.count("y") == 1


def test_the_clip_is_flat_only_where_the_advantage_has_had_its_way() -> None:
    ratios = np.array([0.5, 0.7, 1.0, 1.3, 1.6])
    good = clipped_losses(ratios, 1.0, 0.2, 0.28)
    bad = clipped_losses(ratios, -1.0, 0.2, 0.28)
    assert good == pytest.approx([-0.5, -0.7, -1.0, -1.28, -1.28])
    assert bad == pytest.approx([0.8, 0.8, 1.0, 1.3, 1.6])
    assert "flat" in str(clip_figure(0.2, 0.28).alt)


def test_bars_are_as_long_as_the_ids_and_hatched_where_sampled() -> None:
    turns = [Turn((1,) * 4, (2,) * 2, (-0.1,) * 2), Turn((1,) * 9, (2,) * 3, (-0.1,) * 3)]
    figure = turn_figure(turns)
    bars = figure.axes[0].patches
    assert [bar.get_width() for bar in bars if bar.get_hatch()] == [2, 3, 2, 3]
    assert "5 of 12 ids" in str(figure.alt)
