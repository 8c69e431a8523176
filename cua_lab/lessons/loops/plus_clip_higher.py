"""grpo.py, plus clip-higher (DAPO): rare tokens get more room to grow than to shrink.

A token of probability .01 that may grow by a fifth gets .012 at most, one of .9 gets 1: a
symmetric clip holds back what is rare and good. Two updates on one batch, for at the first one the
ratio is 1 and no clip acts.

The real one is `clip_low`, `clip_high`, `epochs` and `minibatches` of a recipe's `grpo`
(`cua_lab.training.losses`, `cua_lab.training.trainer`).
"""

from __future__ import annotations

from cua_lab.lessons.loops.click_task import click_player
from cua_lab.lessons.loops.grpo import Grpo, main


class PlusClipHigher(Grpo):
    """Other numbers; the formula stays."""

    updates = 2
    clip_high = 0.28


if __name__ == "__main__":
    main(PlusClipHigher, click_player())
