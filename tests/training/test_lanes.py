"""Lanes: parts of an update computed side by side give one answer."""

from __future__ import annotations

import dataclasses
import threading
from itertools import pairwise

import pytest
import torch

from cua_lab.policy.policy import Policy
from cua_lab.recipes.settings import SftSettings
from cua_lab.training.lanes import Lanes
from cua_lab.training.trainer import GRPOTrainer
from cua_lab.training.warmup import by_length, make_example, make_optimizers, sft_step

from .test_trainer import SETTINGS, gradients, mixed
from .test_warmup import GAME, new_policy
from .toys import tiny_policy

KL = dataclasses.replace(SETTINGS, kl="k3", kl_coef=0.5, tokens_per_microbatch=30)


class InTurn(Lanes):
    """The same parts, one after the other, the last one first."""

    def run(self, work):
        return [one() for one in reversed(work)][::-1]


def trained(lanes: Lanes | int) -> tuple[GRPOTrainer, list]:
    policy = tiny_policy()
    trainer = GRPOTrainer(policy, KL, lanes=lanes if isinstance(lanes, int) else lanes.count)
    if isinstance(lanes, Lanes):
        trainer.lanes = lanes
    return trainer, [trainer.step(mixed(policy)) for _ in range(2)]


def test_two_lanes_give_the_gradient_and_the_figures_of_one() -> None:
    one, first = trained(1)
    two, second = trained(2)
    torch.testing.assert_close(gradients(two.policy), gradients(one.policy), atol=1e-6, rtol=1e-4)
    for ours, theirs in zip(second, first, strict=True):
        assert ours.policy_tokens == theirs.policy_tokens
        assert ours.loss == pytest.approx(theirs.loss, abs=1e-6)
        assert ours.kl == pytest.approx(theirs.kl, abs=1e-6)


def test_the_bits_do_not_tell_which_lane_was_quicker() -> None:
    beside = trained(2)[0].policy.model.state_dict()
    in_turn = trained(InTurn(2))[0].policy.model.state_dict()
    assert all(torch.equal(beside[name], in_turn[name]) for name in in_turn)


def warmed(lanes: Lanes) -> tuple[Policy, float]:
    policy, settings = new_policy(), SftSettings(optimizer="muon")
    batch = [make_example(policy, GAME(index)) for index in range(5)]
    metrics = sft_step(policy, make_optimizers(policy, settings), batch, settings, 1, lanes)
    return policy, metrics.loss


def test_a_warm_up_step_is_the_same_in_lanes() -> None:
    (one, loss), (two, in_lanes), (again, _) = warmed(Lanes()), warmed(Lanes(2)), warmed(InTurn(2))
    assert in_lanes == pytest.approx(loss, abs=1e-5)
    torch.testing.assert_close(gradients(two), gradients(one), atol=1e-5, rtol=1e-3)
    torch.testing.assert_close(gradients(two), gradients(again), atol=0, rtol=0)


def test_parts_hold_each_example_once_and_the_longest_together() -> None:
    policy = new_policy()
    batch = [make_example(policy, GAME(index)) for index in range(7)]
    parts = by_length(batch, 3)
    lengths = [[len(item.example.ids) for item in part] for part in parts]
    assert sorted(map(id, (item for part in parts for item in part))) == sorted(map(id, batch))
    assert [len(part) for part in parts] == [2, 2, 3]
    assert all(min(a) >= max(b) for a, b in pairwise(lengths))


def test_an_error_of_one_lane_waits_for_the_other() -> None:
    done = threading.Event()

    def fails() -> None:
        raise ValueError("lane")

    lanes = Lanes(2)
    with pytest.raises(ValueError, match="lane"):
        lanes.run([fails, done.set])
    assert done.is_set()
    with pytest.raises(ValueError, match="lane"):
        lanes.run([done.set, fails])
