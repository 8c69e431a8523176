"""The small files on top of GRPO's loop: each changes what it says, and nothing else."""

import copy
import dataclasses
from pathlib import Path

import pytest
import torch

from cua_lab.demonstrators.demos import ClickPlayer
from cua_lab.lessons.loops.grpo import Grpo
from cua_lab.lessons.loops.plus_clip_higher import PlusClipHigher
from cua_lab.lessons.loops.plus_dr_grpo import PlusDrGrpo
from cua_lab.lessons.loops.plus_kl import PlusKl
from cua_lab.lessons.loops.plus_resume import PlusResume
from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import score
from cua_lab.training.advantages import group_advantages
from cua_lab.training.losses import policy_loss


def nudged(policy: Policy) -> None:
    """Other weights than those that sampled, so that ratios and KL are not trivial."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight += 0.03 * torch.randn(weight.shape, generator=generator)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Grpo, {"clip_high": 0.2}),
        (PlusClipHigher, {"clip_high": 0.28}),
        (PlusKl, {"clip_high": 0.2, "kl": "k3", "kl_coef": 0.1}),
    ],
)
def test_off_policy_the_loss_is_that_of_the_real_one(
    warm: Policy, player: ClickPlayer, kind: type[Grpo], options: dict
) -> None:
    loop = kind(warm, player)
    rollouts = loop.roll_out()
    nudged(warm)
    logprobs = score(warm, rollouts.batch, rollouts.mask).logprobs.detach()
    expected = policy_loss(
        logprobs,
        rollouts.old,
        loop.advantages(rollouts.rewards).flatten(),
        rollouts.mask,
        ref_logprobs=rollouts.old,
        **options,
    )
    assert expected.metrics.clip_fraction > 0
    assert abs(float(loop.loss(logprobs, rollouts)) - float(expected.loss)) < 1e-6


def test_clip_higher_lets_a_good_rare_token_grow_further(warm: Policy, player: ClickPlayer) -> None:
    """At a ratio of 1.25 and a positive advantage the symmetric clip has cut the gradient off."""
    loop, higher = Grpo(warm, player), PlusClipHigher(warm, player)
    rollouts = loop.roll_out()
    for one, moves in ((loop, False), (higher, True)):
        logprobs = (rollouts.old + 0.223).requires_grad_()
        one.loss(logprobs, rollouts).backward()
        good = one.advantages(rollouts.rewards).flatten() > 0
        pushed = logprobs.grad[good][rollouts.mask[good]]
        assert bool((pushed != 0).any()) is moves


def test_dr_grpo_does_not_divide_by_the_spread(warm: Policy, player: ClickPlayer) -> None:
    rewards = torch.tensor([[0.0, 0.5, 1.0], [0.4, 0.5, 0.6]])
    groups = ["a"] * 3 + ["b"] * 3
    expected = group_advantages(rewards.flatten().tolist(), groups, scale="none").values
    found = PlusDrGrpo(warm, player).advantages(rewards).flatten().tolist()
    assert found == pytest.approx(expected, abs=1e-6)


def test_the_reference_of_kl_stays_where_the_run_began(warm: Policy, player: ClickPlayer) -> None:
    loop = PlusKl(warm, player)
    before = copy.deepcopy(loop.reference.model.state_dict())
    loop.step()
    after = loop.reference.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert any(
        not torch.equal(weight, before[name]) for name, weight in warm.model.state_dict().items()
    )


def test_stopping_and_going_on_gives_the_same_bits(
    warm: Policy, player: ClickPlayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loop(folder: str, weights: dict) -> PlusResume:
        model = copy.deepcopy(warm.model)
        model.load_state_dict(weights)
        monkeypatch.setattr(PlusResume, "folder", tmp_path / folder)
        return PlusResume(dataclasses.replace(warm, model=model), player)

    start = copy.deepcopy(warm.model.state_dict())
    through = loop("through", start)
    rewards = [through.step() for _ in range(3)]

    stopped = loop("stopped", start)
    first = stopped.step()
    again = loop("stopped", start)
    assert again.state.step == 1
    assert [first, again.step(), again.step()] == rewards
    for one, other in zip(
        through.policy.model.parameters(), again.policy.model.parameters(), strict=True
    ):
        assert torch.equal(one, other)
