"""Every figure of the package says in words what it shows."""

import ast
from pathlib import Path

from IPython.core.formatters import DisplayFormatter

import cua_lab
from cua_lab.lessons.spread import silence_figure
from cua_lab.viz.picture import Picture

PACKAGE = Path(cua_lab.__file__).parent


def test_a_figure_is_described_by_its_titles_labels_and_series():
    data, metadata = DisplayFormatter().format(silence_figure([2, 8]))
    assert set(data) == {"image/png", "text/plain"}
    assert metadata["image/png"]["alt"] == (
        "Figure: across: rate of success of the policy; up: chance of a silent group;"
        " series: 2 members, 8 members"
    )


def test_a_figures_own_words_come_first():
    picture = Picture()
    picture.alt = "An empty figure"
    assert picture._repr_mimebundle_()[1] == {"image/png": {"alt": "An empty figure"}}


def test_panels_are_named_one_by_one():
    picture = Picture()
    left, right = picture.subplots(1, 2)
    left.set_title("Loss")
    right.set_title("Answers", loc="left")
    right.set_ylabel("share")
    assert picture._repr_mimebundle_()[1]["image/png"]["alt"] == (
        "Figure of 2 panels: Loss. Answers; up: share"
    )


def test_no_figure_is_made_without_a_description():
    """`Figure(...)` itself shows nothing in words; `Picture` does."""
    made = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Figure"
    ]
    assert made == []
