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


class Clock:
    """Seconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_slot_that_hangs_is_absent_after_its_limit_and_back_when_it_asks() -> None:
    """One hung grader of eight made its siblings time out."""
    clock = Clock()
    rounds: Rounds[str] = Rounds(clock)
    rounds.open(3, limit_s=40)
    assert rounds.patience_s is None, "nobody waits"
    clock.now = 10
    rounds.add("c", 2)
    rounds.add("a", 0)
    assert (rounds.take_round(), rounds.patience_s) == ([], 30)
    clock.now = 40
    assert rounds.take_round() == ["a", "c"], "without slot 1, in slot order"
    rounds.add("a2", 0)
    rounds.add("c2", 2)
    assert rounds.take_round() == ["a2", "c2"], "it is not awaited again"
    rounds.add("b", 1)
    assert rounds.take_round() == [], "it asks: the round is whole again"
    rounds.add("c3", 2)
    rounds.add("a3", 0)
    assert rounds.take_round() == ["a3", "b", "c3"]


def test_a_slots_time_starts_when_its_round_has_run_and_not_when_it_was_taken() -> None:
    clock = Clock()
    rounds: Rounds[str] = Rounds(clock)
    rounds.open(2, limit_s=40)
    rounds.add("a", 0)
    rounds.add("b", 1)
    assert rounds.take_round() == ["a", "b"]
    clock.now = 100  # the round took 100 s
    assert rounds.take_round() == []
    clock.now = 130
    rounds.add("a2", 0)
    assert (rounds.take_round(), rounds.patience_s) == ([], 10)


def test_the_order_of_arrival_and_of_waiting_changes_no_round_of_those_that_ask() -> None:
    """Determinism for the others: the rounds are the same whenever the limit acts."""

    def rounds_of(delay: float) -> list[list[str]]:
        clock = Clock()
        rounds: Rounds[str] = Rounds(clock)
        rounds.open(3, limit_s=40)
        taken = []
        for turn in range(3):
            for slot in (2, 0):
                clock.now += delay
                rounds.add(f"{slot}.{turn}", slot)
            clock.now = max(clock.now, 40.0)
            taken.append(rounds.take_round())
        return taken

    assert rounds_of(0.0) == rounds_of(3.0) == [["0.0", "2.0"], ["0.1", "2.1"], ["0.2", "2.2"]]


def test_without_a_limit_a_round_waits() -> None:
    clock = Clock()
    rounds: Rounds[str] = Rounds(clock)
    rounds.open(2)
    rounds.add("a", 0)
    clock.now = 1e6
    assert (rounds.take_round(), rounds.patience_s) == ([], None)
