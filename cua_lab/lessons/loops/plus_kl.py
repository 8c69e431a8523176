"""grpo.py, plus KL: a leash to the policy that the run began with.

    loss + kl_coef * mean(exp(d) - 1 - d),   d = reference - logprob     (k3, never negative)

The real one is `kl` and `kl_coef` of a recipe's `grpo` (`cua_lab.training.losses`). Run it and
compare the reward with that of grpo.py: the leash costs some of it.
"""

from __future__ import annotations

import copy
import dataclasses

import torch
from torch import Tensor

from cua_lab.demonstrators.demos import ClickPlayer
from cua_lab.lessons.loops.click_task import click_player
from cua_lab.lessons.loops.grpo import Grpo, Rollouts, main
from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import score


class PlusKl(Grpo):
    """The reference is frozen when the loop is made."""

    kl_coef = 0.1

    def __init__(self, policy: Policy, player: ClickPlayer) -> None:
        super().__init__(policy, player)
        self.reference = dataclasses.replace(policy, model=copy.deepcopy(policy.model))

    def loss(self, logprobs: Tensor, rollouts: Rollouts) -> Tensor:  # (B, T) -> ()
        with torch.no_grad():
            reference = score(self.reference, rollouts.batch, rollouts.mask).logprobs  # (B, T)
        d = (reference - logprobs)[rollouts.mask]  # (N,)
        return super().loss(logprobs, rollouts) + self.kl_coef * (d.exp() - 1 - d).mean()


if __name__ == "__main__":
    main(PlusKl, click_player())
