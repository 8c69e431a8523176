"""Rounds depend on what the slots do, never on when."""

import pytest

from cua_lab.engine.rounds import Rounds
from cua_lab.errors import LabError


def test_a_round_is_complete_or_it_is_not_taken() -> None:
    rounds: Rounds[str] = Rounds()
    assert rounds.open(3) == (0, 1, 2)
    rounds.add("c", 2)
    rounds.add("a", 0)
    assert rounds.take_round() == []
    rounds.add("b", 1)
    assert rounds.take_round() == ["a", "b", "c"]
    assert rounds.take_round() == []


def test_a_closed_slot_is_not_awaited_and_its_number_comes_back() -> None:
    rounds: Rounds[str] = Rounds()
    rounds.open(2)
    rounds.add("a", 0)
    rounds.close(1)
    assert rounds.take_round() == ["a"]
    assert rounds.open(2) == (1, 2)
    with pytest.raises(LabError, match="slot 7 is not open"):
        rounds.close(7)


def test_an_abandoned_request_frees_the_round_until_its_slot_asks_again() -> None:
    rounds: Rounds[str] = Rounds()
    rounds.open(2)
    rounds.add("a", 0)
    rounds.add("b", 1)
    rounds.abandon("a")
    assert rounds.take_round() == ["b"]
    rounds.add("retry", 0)
    assert rounds.take_round() == []
    rounds.add("b2", 1)
    assert rounds.take_round() == ["retry", "b2"]


def test_requests_without_a_slot_do_not_wait_for_slots() -> None:
    rounds: Rounds[str] = Rounds()
    rounds.open(2)
    rounds.add("a", 0)
    rounds.add("free", None)
    assert rounds.take_round() == []
    assert rounds.take_free() == ["free"]
    assert not rounds.has_free


def test_a_slot_asks_one_thing_at_a_time() -> None:
    rounds: Rounds[str] = Rounds()
    rounds.open(2)
    rounds.add("a", 0)
    with pytest.raises(LabError, match="slot 0 already has a request"):
        rounds.add("again", 0)
    with pytest.raises(LabError, match="open at least 1"):
        rounds.open(0)
