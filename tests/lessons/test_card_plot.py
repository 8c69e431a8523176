"""The bars of a card: nothing that the trainer holds is left out."""

import pytest

from cua_lab.lessons.card_plot import KINDS, card_figure, kinds_of
from cua_lab.recipes import TrainerSettings
from cua_lab.run.cards import GIB, SETUPS, Row
from cua_lab.training.hardware import memory_of, real_config


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """The table's setups, each with a network that is quickly counted."""
    return [
        (
            setup,
            memory_of(
                real_config("tiny"),
                TrainerSettings(precision="bfloat16", lora=setup.lora),
                tokens=256,
            ),
            4.0,
            {"train": 1.0},
        )
        for setup in SETUPS
    ]


def test_the_kinds_add_up_to_the_trainer_and_the_engine(rows: list[Row]) -> None:
    for row in rows:
        assert sum(kinds_of(row).values()) == pytest.approx(row[1].total / GIB + 4.0)


def test_a_bar_is_a_share_of_its_own_card(rows: list[Row]) -> None:
    figure = card_figure(rows)
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert len(widths) == len(rows) * (len(KINDS) + 1)
    assert widths[-len(rows) :] == pytest.approx([4.0 / setup.card.gib for setup, *_ in rows])
    assert all(setup.card.name in str(figure.alt) for setup, *_ in rows)
