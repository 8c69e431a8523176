"""A run in which nothing is graded stops, and says why how often."""

import pytest

from cua_lab.errors import LabError
from cua_lab.play.episode import Episode
from cua_lab.run.graded import GradedSteps, check_graded
from cua_lab.run.tally import Tally


def failed(error: str | None) -> Episode:
    return Episode("e", "g", "t", (), (), (), reward=None, status="failed", error=error)


GRADED = Episode("e", "g", "t", (), (), (), reward=0.0, status="completed")
DEAD = [failed("the screen sent no frame within 10 s"), failed("no frame"), failed("no frame")]


def test_the_limit_counts_steps_in_a_row() -> None:
    steps = GradedSteps(limit=2)
    steps.see(DEAD, "step 1")
    steps.see([*DEAD, GRADED], "step 2")
    steps.see(DEAD, "step 3")
    with pytest.raises(LabError, match="step 4, 2 steps in a row: none of 3 episodes") as caught:
        steps.see(DEAD, "step 4")
    assert "2 times: no frame; 1 times: the screen sent no frame within 10 s" in str(caught.value)


def test_an_evaluation_without_a_graded_episode_stops_at_once() -> None:
    check_graded([*DEAD, GRADED], "before")
    check_graded([], "nothing was asked for")
    with pytest.raises(LabError, match="before: none of 3"):
        check_graded(DEAD, "before")


def test_an_episode_that_training_wrote_off_is_counted_as_failed() -> None:
    tally = Tally()
    tally.add_episodes([GRADED, GRADED])
    tally.correct_episodes([GRADED, GRADED], [GRADED, failed("no log-probabilities")])
    assert tally.episodes == {"completed": 1, "failed": 1}


def test_a_tally_is_read_as_it_was_written_and_as_format_2_wrote_it() -> None:
    tally = Tally(tokens_by_part={"decode": 7}, seconds={"decode": 2.0})
    record = tally.record()
    assert Tally.read(record) == tally
    record["work"] = record.pop("tokens_by_part")
    assert Tally.read(record) == tally
    assert tally.rates() == {"decode": 3.5}
