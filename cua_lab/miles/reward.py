"""Rewards and group statistics for Miles: `--custom-rm-path`, `--custom-reward-post-process-path`.

    samples of a step ──post_process_rewards──▶ (raw rewards for the logs, advantages)

Miles' own normalisation sees a failed episode as a reward of 0.0: with rewards 1 1 1 and a failure
the three good ones get +0.5 and the failure -1.5. Its hook for custom post-processing replaces
exactly that step, and ours is the trainer's `group_advantages`: a failed episode is in no mean, no
deviation and no count, and gets 0. The deviation is the population's, as in our trainer; Miles
divides by n - 1, so its advantages are sqrt((n - 1) / n) of these (0.94 for groups of 8).

What remains of a failed episode, since it must stay in the batch for the ranks to stay in step:
- the loss: nothing with `--calculate-per-token-loss`, but that Miles counts a masked-out sample as
  one token; without the flag it is one of the samples that the sum is divided by, so a step with f
  failures of n has (n - f) / n of its gradient;
- the reward curve: Miles logs one number per sample; a failure gets the mean of its group's graded
  siblings, which moves no mean, and `metadata["cua_lab"]["graded"]` tells them apart;
- whoever reads `sample.reward` before this hook (dynamic sampling filters, evaluation, pass rates)
  sees the stand-in 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cua_lab.errors import LabError
from cua_lab.training.advantages import group_advantages


async def reward_func(args: Any, samples: Any, **kwargs: Any) -> Any:
    """The env's grade: a float for one sample, a list for a list of any depth."""
    if isinstance(samples, list):
        return [await reward_func(args, sample) for sample in samples]
    about = _about(samples)
    return samples.reward if about["reward"] is None else about["reward"]


def post_process_rewards(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Raw rewards and advantages, one of each per sample, in order."""
    if args.advantage_estimator not in ("grpo", "gspo"):
        raise LabError(
            f"advantage_estimator is {args.advantage_estimator!r}; the plug-in computes group"
            " advantages, so it must be grpo or gspo"
        )
    abouts = [_about(sample) for sample in samples]
    rewards = [about["reward"] for about in abouts]
    groups = [_group(sample, about) for sample, about in zip(samples, abouts, strict=True)]
    advantages = group_advantages(
        rewards,
        groups,
        episodes=[about["episode"] for about in abouts],
        scale="std" if args.grpo_std_normalization else "none",
    )
    means = {stats.group: stats.mean for stats in advantages.groups}
    neutral = _mean([reward for reward in rewards if reward is not None])
    raw = [
        _first_number(reward, means[group], neutral)
        for reward, group in zip(rewards, groups, strict=True)
    ]
    return raw, [0.0 if math.isnan(value) else value for value in advantages.values]


def _about(sample: Any) -> dict[str, Any]:
    about: dict[str, Any] | None = (sample.metadata or {}).get("cua_lab")
    if about is None:
        raise LabError(
            f"sample {sample.index} did not come from cua_lab.miles.generate: its metadata has no"
            " 'cua_lab'; give --custom-generate-function-path cua_lab.miles.generate.generate"
        )
    return about


def _group(sample: Any, about: dict[str, Any]) -> str:
    return about["group"] if sample.group_index is None else str(sample.group_index)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _first_number(*values: float | None) -> float:
    """The first that is a number; 0.0 where no episode of the whole step was graded."""
    return next((v for v in values if v is not None and not math.isnan(v)), 0.0)
