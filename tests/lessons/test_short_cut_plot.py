"""Full marks without what was meant are counted among graded episodes of one phase."""

from types import SimpleNamespace

from cua_lab.lessons.short_cut_plot import short_cut_figure, short_cuts


def row(reward, success, phase="eval_after"):
    return SimpleNamespace(reward=reward, success=success, phase=phase)


def test_only_full_marks_that_were_not_meant_are_short_cuts() -> None:
    rows = [row(1, False), row(1, True), row(1 / 3, True), row(0, False), row(None, None),
            row(1, False, "grpo")]  # fmt: skip
    assert short_cuts(rows, "eval_after") == (1, 4)


def test_a_panel_a_run_with_both_lines_and_a_text() -> None:
    steps = [SimpleNamespace(step=i, reward_mean=i / 3, success=None if i == 1 else 0.5)
             for i in range(3)]  # fmt: skip
    figure = short_cut_figure({"open": steps, "gated": steps})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["open", "gated"]
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [3, 2]
    assert "open, gated" in figure.alt
