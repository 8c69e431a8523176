"""The lab's samples written into Miles' `Sample`s, field by field.

| Miles | ours |
|---|---|
| tokens, response_length | all ids; how many of them follow the first prompt |
| loss_mask, rollout_log_probs | over the response; 0.0 where the mask is 0 (ours is NaN there) |
| multimodal_train_inputs | pixels, grids and positions (`train_inputs.py`) |
| response, status, reward | text of the response; COMPLETED, TRUNCATED or FAILED; a number |
| remove_sample | true for a failed episode |
| rollout_id | the index: parts of one episode share it |
| metadata["round_number"] | turns: Miles' per-turn metric reads it |
| metadata["cua_lab"] | episode, group, part, parts, graded, reward, reason, turns, divergences |

Miles trains with a number as reward, and a failed episode has none: 0.0 stands in, and
`metadata["cua_lab"]["graded"]` says so; `reward.py` keeps it out of every statistic. Invariant:
`validate()` of Miles' class holds for every sample made here, and each carries an image.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from cua_lab.miles.train_inputs import Positions, train_inputs
from cua_lab.stitching.sample import Sample

STATUS = {"completed": "COMPLETED", "truncated": "TRUNCATED", "failed": "FAILED"}
"""Ours -> the name in Miles' `Sample.Status`."""
STAND_IN = 0.0
"""Miles' reward field of an episode that has no reward."""


def to_miles(
    target: Any,
    samples: Sequence[Sample],
    decode: Callable[[Sequence[int]], str],
    positions: Positions | None = None,
    *,
    evaluation: bool = False,
) -> list[Any]:
    """Write one episode's samples: the first into `target`, others into copies of it.

    In an evaluation a failed episode keeps no reward: Miles asks `reward_func`, which has none.
    """
    targets = [target, *[copy.deepcopy(target) for _ in samples[1:]]]
    for one, sample in zip(targets, samples, strict=True):
        _write(one, sample, decode, positions)
        if evaluation and sample.reward is None:
            one.reward = None
        one.validate()
    return targets


def _write(
    target: Any,
    sample: Sample,
    decode: Callable[[Sequence[int]], str],
    positions: Positions | None,
) -> None:
    stitched = sample.stitched
    response = stitched.tokens[stitched.response_start :]
    target.tokens = list(stitched.tokens)
    target.response_length = len(response)
    target.response = decode(response) if response else ""
    target.loss_mask = list(stitched.loss_mask)
    pairs = zip(stitched.loss_mask, stitched.logprobs, strict=True)
    target.rollout_log_probs = [logprob if kept else 0.0 for kept, logprob in pairs]
    target.multimodal_train_inputs = train_inputs(sample, positions)
    target.status = type(target).Status[STATUS[sample.status]]
    target.remove_sample = sample.status == "failed"
    target.rollout_id = target.index
    target.reward = STAND_IN if sample.reward is None else sample.reward
    # Miles takes the least of them as a number; sglang says "default" before the first update.
    target.weight_versions = [v for v in stitched.weight_versions if v.isdigit()]
    about = _about(sample)
    target.metadata = {
        **(target.metadata or {}),
        "round_number": about["turns"],
        "cua_lab": about,
    }


def _about(sample: Sample) -> dict[str, Any]:
    """What a log line, a statistic or a dump may want to know; plain values only."""
    stitched = sample.stitched
    failed = sample.status == "failed"
    return {
        "episode": sample.episode,
        "group": sample.group,
        "part": sample.part,
        "parts": sample.parts,
        "graded": not failed,
        "reward": sample.reward,
        "reason": sample.reason,
        "turns": 0 if failed else stitched.last_turn - stitched.first_turn + 1,
        "trained_tokens": sum(stitched.loss_mask),
        "divergences": dict(Counter(d.kind for d in stitched.divergences)),
        "ended_by": stitched.ended_by,
    }
