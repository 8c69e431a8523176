"""Rewards and group statistics for Miles: `--custom-rm-path`, `--custom-reward-post-process-path`.

    samples of a step ──graded_advantages──▶ (raw rewards for the logs, advantages)
                      ──token_mean──▶ advantages whose mean over episodes is a mean over tokens

Miles' own normalisation sees a failed episode as a reward of 0.0: with rewards 1 1 1 and a failure
the three good ones get +0.5 and the failure -1.5. Its hook for custom post-processing replaces
exactly that step, and ours is the trainer's `group_advantages`: a failed episode is in no mean, no
deviation and no count, and gets 0. The deviation is the population's, as in our trainer; Miles
divides by n - 1, so its advantages are sqrt((n - 1) / n) of these (0.94 for groups of 8).

`normalise: token`. Miles averages each sample's tokens, sums the samples and divides by the global
batch size N. Its flag for a mean over tokens, `--calculate-per-token-loss`, is not implemented by
its FSDP backend: the count of tokens is dropped and the gradient is their SUM (miles#3231; norm
37.6 where .194 is right, so the gradient clip acts on every step). An advantage is a factor of the
loss of each token, also of a clipped one, so A_i n_i N / sum(n) in place of A_i, with n_i trained
tokens, makes Miles' mean over samples the mean over tokens exactly. What has no advantage in it is
not changed by this: a KL or entropy loss stays a mean over episodes first, in which a failed
episode counts as one without a penalty; and a whitening of advantages afterwards would undo it.

What remains of a failed episode, since it must stay in the batch for the ranks to stay in step:
- the loss: nothing with `normalise: token`, for sum(n) is over trained tokens; with `sequence` it
  is one of the samples that the sum is divided by, so a step with f failures of N has (N - f) / N
  of its gradient;
- the reward curve: Miles logs one number per sample; a failure gets the mean of its group's graded
  siblings, which moves no mean, and `metadata["cua_lab"]["graded"]` tells them apart;
- code that reads `sample.reward` before this hook (dynamic sampling filters, pass rates) sees the
  stand-in 0.0, and an evaluation `None`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cua_lab.errors import LabError
from cua_lab.miles.recipe import from_args
from cua_lab.miles.stopping import ends_the_run
from cua_lab.training.advantages import group_advantages


@ends_the_run
async def reward_func(args: Any, samples: Any, **kwargs: Any) -> Any:
    """The env's grade: a float for one sample, a list for a list of any depth; `None` for a failed
    episode of an evaluation."""
    return _grade(samples)


def post_process_rewards(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Raw rewards, and advantages as the recipe's `normalise` wants them, one per sample."""
    raw, advantages = graded_advantages(args, samples)
    check_equal_steps(args, len(samples))
    if from_args(args).train.normalise == "sequence":
        return raw, advantages
    tokens = [sum(sample.loss_mask) for sample in samples]
    return raw, token_mean(advantages, tokens, batch=args.global_batch_size)


def graded_advantages(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Raw rewards and group advantages, one of each per sample, in order."""
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


def token_mean(advantages: Sequence[float], tokens: Sequence[int], *, batch: int) -> list[float]:
    """A_i n_i N / sum(n) over each optimizer step, which takes `batch` (N) samples in order.

    `tokens` are the trained ones of each sample. An incomplete step at the end is not trained.
    """
    weighted: list[float] = []
    for start in range(0, len(tokens), batch):
        step = range(start, min(start + batch, len(tokens)))
        total = sum(tokens[i] for i in step)
        weighted += [advantages[i] * tokens[i] * batch / total if total else 0.0 for i in step]
    return weighted


def check_equal_steps(args: Any, samples: int) -> None:
    """Refuse a step of which some ranks would make one update more than others: they hang.

    Samples are dealt out one by one, and each rank makes as many updates as it has whole shares.
    """
    ranks = args.actor_num_nodes * args.actor_num_gpus_per_node
    share = args.global_batch_size // ranks
    most, least = -(-samples // ranks) // share, samples // ranks // share
    if most != least:
        raise LabError(
            f"{samples} samples on {ranks} ranks with a global batch of {args.global_batch_size}:"
            f" some ranks would make {most} updates and others {least}, and wait"
            " forever; set agent.after_rewrite=truncate, which makes one sample of an episode"
        )


def _grade(samples: Any) -> Any:
    if isinstance(samples, list):
        return [_grade(sample) for sample in samples]
    about = _about(samples)
    return samples.reward if about["reward"] is None else about["reward"]


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
