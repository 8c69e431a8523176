r"""The learning rate of a warm-up's update and of a GRPO update, as a share of the full one.

    1 |    /------------\
      |   /              \
      +--+--------------+--> updates
      warmup_steps      the last cooldown_steps
"""

from __future__ import annotations


def rate_share(*, update: int, left: int, warmup_steps: int, cooldown_steps: int) -> float:
    """Linear up over the first updates, constant, linear down over the last steps.

    `update` counts from 1; `left` are the steps until the end, this one among them.
    """
    share = min(1.0, update / max(1, warmup_steps))
    if cooldown_steps:
        share = min(share, max(0, left) / (cooldown_steps + 1))
    return share
