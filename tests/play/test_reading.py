"""Thoughts marked against what was on the screen."""

from typing import Any

import pytest

from cua_lab.play.episode import Action, Episode
from cua_lab.play.reading import Transcript, transcripts


def episode(*thoughts: str, readings: Any, keys: int = 1) -> Episode:
    actions = tuple(
        Action({"action": "press", "keys": ["up"] * keys}, True, "", None, thought)
        for thought in thoughts
    )
    return Episode("e", "g", "t", (), actions, (), 1.0, "completed", True, {"readings": readings})


@pytest.mark.parametrize(
    ("thought", "wrong"),
    [
        ("00/35 11 12 row", ()),
        ("00/36 11 12 row", (4,)),
        ("00/3", (4,)),
        ("", (0, 1, 3, 4)),
        ("00x35 none", ()),  # what separates is no cell
        ("0035", (3, 4)),
    ],
)
def test_cells_are_marked_and_separators_are_not(thought: str, wrong: tuple[int, ...]) -> None:
    transcript = Transcript(thought, "00/35")
    assert transcript.wrong == wrong
    assert transcript.share == 1 - len(wrong) / 4
    assert transcript.exact == (not wrong)


def test_a_turn_is_marked_against_the_screen_that_its_keys_led_to() -> None:
    found = transcripts(episode("aa", "bb", readings=["aa", "bb", "cc"]))
    assert [t is not None and t.exact for t in found] == [True, True]
    found = transcripts(episode("aa", "cc", readings=["aa", "bb", "cc"], keys=2))
    assert [t is not None and t.exact for t in found] == [True, True]


def test_what_has_no_reading_is_not_marked() -> None:
    """Missing is not zero: a template that is not read out, and a screen past the last one told."""
    assert transcripts(episode("aa", readings=None)) == (None,)
    assert transcripts(episode("aa", "bb", readings=["aa"])) == (Transcript("aa", "aa"), None)
