"""The strips of pushes: what has no loss is not drawn as nothing."""

import pytest

from cua_lab.errors import LabError
from cua_lab.lessons.pushes import push_figure, shown


def test_a_token_without_loss_is_a_dot_and_not_a_bar() -> None:
    figure = push_figure(["up", '"]\n', "<|im_end|>"], {"right": [1, -1, 1], "wrong": [1, 0, None]})
    right, wrong = figure.axes
    assert [bar.get_height() for bar in right.patches] == [1, -1, 1]
    assert [bar.get_height() for bar in wrong.patches] == [1, 0]
    assert wrong.lines[0].get_xdata().tolist() == [2]


def test_tokens_stay_short_and_their_spaces_visible() -> None:
    assert shown(" a\n") == "·a↵"
    assert shown('\n{"name": "computer"}') == '↵{"name":…r"}'


def test_a_strip_of_another_length_is_refused() -> None:
    with pytest.raises(LabError, match="'wrong' has 1 pushes but there are 2 tokens"):
        push_figure(["a", "b"], {"wrong": [1.0]})
