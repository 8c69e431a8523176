"""grpo.py, plus Dr.GRPO: the advantage is not divided by the group's standard deviation.

Dividing makes a group whose rewards hardly differ as loud as one that tells good from bad; without
it an easy start teaches less than a hard one.

The real one is `scale: none` of a recipe's `grpo` (`cua_lab.training.advantages`).
"""

from __future__ import annotations

from torch import Tensor

from cua_lab.lessons.loops.click_task import click_player
from cua_lab.lessons.loops.grpo import Grpo, main


class PlusDrGrpo(Grpo):
    """One line less."""

    def advantages(self, rewards: Tensor) -> Tensor:  # (G, M) -> (G, M)
        return rewards - rewards.mean(1, keepdim=True)


if __name__ == "__main__":
    main(PlusDrGrpo, click_player())
