"""The warm-up's page shows what was measured, where it was measured."""

from cua_lab.lessons.warmup_plot import warm_up_figure


def test_losses_start_at_step_one_and_looks_stand_at_their_steps() -> None:
    figure = warm_up_figure([3.0, 1.0], {"valid": {0: 0.0, 2: 1.0}, "inside": {2: 0.5}}, chance=0.1)
    left, right = figure.axes
    assert left.lines[0].get_xdata().tolist() == [1, 2]
    valid, inside, blind = right.lines
    assert (list(valid.get_xdata()), list(inside.get_ydata())) == ([0, 2], [0.5])
    assert list(blind.get_ydata()) == [0.1, 0.1]
    assert figure._repr_png_().startswith(b"\x89PNG")
