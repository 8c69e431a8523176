"""A panel a run, with what is paid and what was meant."""

from types import SimpleNamespace

from cua_lab.lessons.short_cut_plot import short_cut_figure


def test_a_panel_a_run_with_both_lines_and_a_text() -> None:
    steps = [SimpleNamespace(step=i, reward_mean=i / 3, success=None if i == 1 else 0.5)
             for i in range(3)]  # fmt: skip
    figure = short_cut_figure({"open": steps, "gated": steps})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["open", "gated"]
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [3, 2]
    assert "open, gated" in figure.alt
