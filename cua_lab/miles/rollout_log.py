"""Miles' two hooks for logging: failures are counted, and counted as nothing else.

    Miles' samples ──▶ metrics that Miles does not have, into the dict that it then logs

Miles averages what has no reward as 0.0, in an evaluation and in its pass rate; a dead sandbox
would look like a bad policy. Both hooks return False: Miles goes on to log its own metrics.

Invariant: training samples are never changed; of an evaluation, which is not trained on, failed
episodes are taken out.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

logger = logging.getLogger("cua_lab.miles")


def log_rollout(
    rollout_id: int, args: Any, samples: Sequence[Any], extra: dict[str, Any] | None, seconds: float
) -> bool:
    """Of a training step: the share that failed, and turns, reward and solved of the others."""
    episodes = [s.metadata["cua_lab"] for s in samples if s.metadata["cua_lab"]["part"] == 0]
    found = episode_metrics(episodes)
    if extra is not None:
        extra.update({f"rollout/{name}": value for name, value in found.items()})
    logger.info("rollout %d in %.0f s: %s", rollout_id, seconds, found)
    return False


def log_eval(
    rollout_id: int, args: Any, data: dict[str, dict[str, Any]], extra: dict[str, Any] | None
) -> bool:
    """Of an evaluation: only graded episodes stay; a data set without one is not logged.

    Miles' pass@k asserts that all samples of a prompt are there: with `--log-passrate`, a prompt
    with a failed sample is left out as a whole, as Miles itself does in training.
    """
    members = args.n_samples_per_eval_prompt if args.log_passrate else 1
    for name in list(data):
        samples = data[name]["samples"]
        abouts = [sample.metadata["cua_lab"] for sample in samples]
        found = episode_metrics([about for about in abouts if about["part"] == 0])
        if extra is not None:
            extra.update({f"eval/{name}/{key}": value for key, value in found.items()})
        logger.info("evaluation %d of %s: %s", rollout_id, name, found)
        whole = [i for i, about in enumerate(abouts) if about["part"] == 0]
        failed = {samples[i].index // members for i in whole if not abouts[i]["graded"]}
        kept = [i for i in whole if samples[i].index // members not in failed]
        if not kept:
            logger.error("evaluation %d of %s: no episode was graded", rollout_id, name)
            del data[name]
            continue
        for key in ("rewards", "truncated", "samples"):
            data[name][key] = [data[name][key][i] for i in kept]
    return False


def episode_metrics(episodes: Sequence[dict[str, Any]]) -> dict[str, float]:
    """`failed_ratio`, and over graded episodes `graded_reward`, `graded_solved` (reward 1) and
    `graded_turns`, which are absent where none was graded."""
    graded = [about for about in episodes if about["graded"]]
    found = {"failed_ratio": (len(episodes) - len(graded)) / len(episodes)} if episodes else {}
    if graded:
        found["graded_reward"] = math.fsum(about["reward"] for about in graded) / len(graded)
        found["graded_solved"] = sum(about["reward"] == 1 for about in graded) / len(graded)
        found["graded_turns"] = sum(about["turns"] for about in graded) / len(graded)
    return found
