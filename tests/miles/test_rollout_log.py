"""What a step and an evaluation count, and that failures are in none of it."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from cua_lab.miles.rollout_log import log_eval, log_rollout
from tests.miles.standin import sample_classes

ARGS = SimpleNamespace(n_samples_per_eval_prompt=1, log_passrate=False)


def made(cls: Any, index: int, reward: float | None, *, turns: int = 2, part: int = 0) -> Any:
    about = {"graded": reward is not None, "reward": reward, "turns": turns, "part": part}
    return cls(index=index, group_index=index // 2, reward=reward, metadata={"cua_lab": about})


@pytest.fixture(params=sample_classes())
def cls(request: pytest.FixtureRequest) -> Any:
    return request.param


def evaluation(samples: list[Any]) -> dict[str, Any]:
    return {"rewards": [s.reward for s in samples], "truncated": [False] * len(samples),
            "samples": samples}  # fmt: skip


def test_a_step_says_how_many_failed_and_what_the_others_did(cls: Any) -> None:
    samples = [made(cls, 0, 1.0, turns=4), made(cls, 0, 1.0, part=1), made(cls, 1, 0.5),
               made(cls, 2, None)]  # fmt: skip
    before = list(samples)
    extra: dict[str, Any] = {"rollout/kept": 1}
    assert log_rollout(3, ARGS, samples, extra, 12.0) is False, "Miles logs its own, too"
    assert extra.pop("rollout/kept") == 1
    assert extra.pop("rollout/failed_ratio") == pytest.approx(1 / 3)
    assert extra == {"rollout/graded_reward": 0.75, "rollout/graded_solved": 0.5,
                     "rollout/graded_turns": 3.0}  # fmt: skip
    assert samples == before


def test_a_failed_episode_is_no_zero_of_an_evaluation(cls: Any) -> None:
    data = {"held-out": evaluation([made(cls, i, r) for i, r in enumerate([1.0, None, 0.5])])}
    assert log_eval(3, ARGS, data, None) is False
    assert data["held-out"]["rewards"] == [1.0, 0.5]
    assert [s.index for s in data["held-out"]["samples"]] == [0, 2]
    assert len(data["held-out"]["truncated"]) == 2


def test_an_evaluation_without_a_grade_is_not_logged(cls: Any) -> None:
    data = {"a": evaluation([made(cls, 0, None)]), "b": evaluation([made(cls, 0, 0.0)])}
    extra: dict[str, Any] = {}
    log_eval(0, ARGS, data, extra)
    assert list(data) == ["b"]
    assert (extra["eval/a/failed_ratio"], extra["eval/b/failed_ratio"]) == (1.0, 0.0)
    assert "eval/a/graded_reward" not in extra


def test_pass_at_k_keeps_whole_prompts(cls: Any) -> None:
    args = SimpleNamespace(n_samples_per_eval_prompt=2, log_passrate=True)
    samples = [made(cls, i, r) for i, r in enumerate([1.0, None, 0.5, 0.0])]
    data = {"a": evaluation(samples)}
    log_eval(0, args, data, None)
    assert data["a"]["rewards"] == [0.5, 0.0]


def test_miles_own_evaluation_takes_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mean, its pass@k and its statistics, on the real code where there is some."""
    metrics = pytest.importorskip("miles.ray.rollout.metrics")
    from miles.utils.types import Sample

    logged: dict[str, float] = {}
    monkeypatch.setattr(metrics.tracking, "log", lambda args, found, step_key: logged.update(found))
    monkeypatch.setattr(metrics, "compute_rollout_step", lambda args, rollout: rollout)
    args = SimpleNamespace(
        custom_eval_rollout_log_function_path="cua_lab.miles.rollout_log.log_eval",
        log_passrate=True, n_samples_per_eval_prompt=2, advantage_estimator="grpo",
        reward_key=None, log_reward_category=None, sglang_speculative_algorithm=None,
    )  # fmt: skip
    samples = [made(Sample, i, r) for i, r in enumerate([1.0, 1.0, None, 0.0, None, None])]
    for sample in samples:
        sample.loss_mask, sample.response = [1], "x"
    metrics.log_eval_rollout_data(2, args, {"a": evaluation(samples)}, None)
    assert logged["eval/a"] == 1.0
    assert logged["eval/a-none_reward_ratio"] == 0.0
    assert logged["eval/a-pass@1"] == 1.0
    assert all(math.isfinite(value) for value in logged.values())
