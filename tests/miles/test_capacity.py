"""The planner against arithmetic and laws."""

from dataclasses import replace

import pytest

from cua_lab.errors import LabError
from cua_lab.miles.capacity import H200, Speeds, Workload, plan, simulate_rollout, workload_of
from cua_lab.miles.recipe import load_miles_recipe

WORK = Workload(episodes=1, turns=3, prompt_tokens=100, frame_tokens=50, scaffold_tokens=10,
                answer_tokens=20)  # fmt: skip
SPEEDS = Speeds(prefill_tokens_s=100, decode_step_s=0.1, decode_token_s=0.05, env_s=2, boot_s=5)


def test_one_episode_by_hand() -> None:
    """5 to boot; 150 + 60 + 60 new tokens at 100/s; 3 answers of 20 at .15; 3 moves of 2."""
    made = simulate_rollout(WORK, SPEEDS, sandboxes=1, engines=1)
    assert made.seconds == pytest.approx(5 + 2.7 + 9.0 + 6)
    assert made.engine_busy == pytest.approx(11.7 / 22.7)
    assert made.sandbox_s == pytest.approx(22.7)


def test_episodes_that_wait_for_a_sandbox_come_in_waves() -> None:
    work = replace(WORK, episodes=3)
    one = simulate_rollout(work, SPEEDS, sandboxes=1, engines=1)
    assert one.seconds == pytest.approx(3 * 22.7)
    assert one.sandbox_s == pytest.approx(3 * 22.7)


def test_a_batch_shares_its_steps_and_a_full_one_makes_others_wait() -> None:
    work = replace(WORK, episodes=2, turns=1)
    both = simulate_rollout(work, SPEEDS, sandboxes=2, engines=1)
    assert both.seconds == pytest.approx(5 + 3.0 + 20 * 0.2 + 2)
    queued = simulate_rollout(work, replace(SPEEDS, max_batch=1), sandboxes=2, engines=1)
    assert queued.seconds == pytest.approx(5 + 2 * (1.5 + 3.0) + 2)
    apart = simulate_rollout(work, SPEEDS, sandboxes=2, engines=2)
    assert apart.seconds == pytest.approx(5 + 1.5 + 3.0 + 2)


def test_more_of_anything_is_never_slower() -> None:
    work = replace(WORK, episodes=40)
    times = [simulate_rollout(work, SPEEDS, sandboxes=n, engines=1).seconds for n in (1, 4, 40)]
    assert times == sorted(times, reverse=True)
    cards = [simulate_rollout(work, SPEEDS, sandboxes=40, engines=n).seconds for n in (1, 4, 40)]
    assert cards == sorted(cards, reverse=True)


def test_the_whole_step_and_its_price() -> None:
    speeds = replace(SPEEDS, train_tokens_s=10, transfer_min_per_gib=2)
    work = replace(WORK, frame_gib=0.5)
    made = plan(work, speeds, sandboxes=1, gpus=2, gpu_hour=3600, sandbox_hour=1800)
    assert made.train_s == pytest.approx((270 + 60) / 10 / 2)
    assert made.transfer_s == pytest.approx(1.5 * 2 * 60)
    assert made.bottleneck == "pixels to the trainer"
    assert made.cost == pytest.approx(2 * made.step_s + 0.5 * made.rollout.sandbox_s)


def test_ten_thousand_desktops_are_planned_in_a_moment() -> None:
    work = replace(workload_of(load_miles_recipe()), episodes=10_000)
    made = plan(work, H200, sandboxes=10_000, gpus=64)
    assert made.rollout.sandbox_s >= 10_000 * (H200.boot_s + 24 * H200.env_s)


@pytest.mark.parametrize("changes", [{"episodes": 0}, {"turns": 0}, {"answer_tokens": 0}])
def test_nothing_to_play_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(LabError, match="must be at least 1"):
        replace(WORK, **changes)


def test_a_host_that_drives_every_screen_does_one_turn_after_another() -> None:
    """Answers of both at 5 + 3 + 4; then 4 s of the host each, and 2 s that they share."""
    work = replace(WORK, episodes=2, turns=1)
    made = simulate_rollout(work, replace(SPEEDS, host_s=4), sandboxes=2, engines=1)
    assert made.seconds == pytest.approx(5 + 3.0 + 4.0 + 2 * 4 + 2)


def test_in_rounds_an_engine_waits_for_all_and_answers_as_many_batches_as_they_need() -> None:
    """Answered at once the host never rests; in rounds it waits for the second answers of both."""
    work = replace(WORK, episodes=2, turns=2)
    eager = simulate_rollout(work, replace(SPEEDS, host_s=8), sandboxes=2, engines=1)
    assert eager.seconds == pytest.approx(5 + 7 + 4 * 8 + 2)
    rounds = replace(SPEEDS, host_s=8, rounds=True)
    made = simulate_rollout(work, rounds, sandboxes=2, engines=1)
    assert made.seconds == pytest.approx(5 + 7 + 16 + 2 + (1.2 + 4) + 16 + 2)
    small = simulate_rollout(work, replace(rounds, max_batch=1), sandboxes=2, engines=1)
    assert small.seconds == pytest.approx(5 + 9 + 16 + 2 + 2 * 3.6 + 16 + 2)


def test_what_the_cache_holds_is_not_computed_but_trained() -> None:
    work = replace(WORK, computed=0.5)
    made = plan(work, replace(SPEEDS, train_tokens_s=10), sandboxes=1, gpus=1)
    assert made.rollout.seconds == pytest.approx(22.7 - 2.7 / 2)
    assert made.train_s == pytest.approx((270 + 60) / 10)
