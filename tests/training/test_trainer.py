"""The trainer on a tiny policy: it agrees with whoever sampled, adds up, and learns."""

import dataclasses
import math

import pytest
import torch

from cua_lab.errors import LabError
from cua_lab.policy.policy import Policy
from cua_lab.recipes import GrpoSettings
from cua_lab.training.batching import micro_batches, microbatch_rows, minibatch_rows
from cua_lab.training.trainer import GRPOTrainer, LogprobMismatch
from tests.training.toys import batch, roll_out, tiny_policy, write_off

SETTINGS = GrpoSettings(lr=1e-3, warmup_steps=0, logprob_gap_limit=1e-5)


def length_of_bytes(output) -> float:
    """A reward that differs between answers."""
    return float(sum(output) % 7)


def gradients(policy: Policy) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])


def step_once(samples_of, settings=SETTINGS, **options) -> tuple[Policy, object]:
    """A fresh policy, one step on its samples."""
    policy = tiny_policy()
    metrics = GRPOTrainer(policy, settings, **options).step(samples_of(policy))
    return policy, metrics


def mixed(policy: Policy):
    """Two groups with answers of one to four tokens and prompts of different lengths."""
    samples = []
    for i in range(4):
        text, group = "click " * (i + 1), f"g{i % 2}"
        samples += roll_out(
            policy, length_of_bytes, seeds=[i, i + 9], group=group, tokens=1 + i, text=text
        )
    return samples


def test_trainer_and_sampler_agree_on_every_policy_token_and_the_first_ratio_is_one():
    """trl#4159, trl#6789; wrong positions would give 0.14."""
    _, metrics = step_once(mixed)
    assert metrics.logprob_gap_max <= 1e-5
    assert metrics.ratio_first_error == 0.0
    assert metrics.policy_tokens == 2 * (1 + 2 + 3 + 4)
    assert metrics.clip_fraction == 0.0
    assert metrics.entropy > 1.0
    assert math.isnan(metrics.kl)


def test_the_spread_reported_is_the_one_inside_the_groups():
    """Two groups that are far apart but agree within have nothing to teach."""
    policy = tiny_policy()
    samples = [
        dataclasses.replace(sample, reward=10.0 * (sample.group == "g0") + index % 2)
        for index, sample in enumerate(batch(policy, length_of_bytes))
    ]
    metrics = GRPOTrainer(policy, SETTINGS).step(samples)
    assert metrics.reward_mean == pytest.approx(5.5)
    assert metrics.reward_std == pytest.approx(0.5)


def test_samples_drawn_at_another_temperature_are_refused_before_any_update():
    policy = tiny_policy()
    before = [p.clone() for p in policy.model.parameters()]
    samples = batch(policy, length_of_bytes, temperature=0.6)
    with pytest.raises(LogprobMismatch, match=r"token \d+ of episode 'g\d/\d+' in group"):
        GRPOTrainer(policy, SETTINGS).step(samples)
    assert all(map(torch.equal, before, policy.model.parameters()))
    metrics = GRPOTrainer(policy, SETTINGS, temperature=0.6).step(samples)
    assert metrics.logprob_gap_max <= 1e-5


def test_pixels_reach_training():
    """agent-lightning#560: images never arrived, and the loss still fell. sglang PR #36468: an
    engine's image features outlive a flush; the error names them before a higher limit."""
    policy = tiny_policy()
    samples = batch(policy, length_of_bytes)
    blind = [dataclasses.replace(s, pixel_values=0 * s.pixel_values) for s in samples]
    with pytest.raises(LogprobMismatch, match=r"pixels.*SGLANG_VLM_CACHE_SIZE_MB=0.*bf16"):
        GRPOTrainer(policy, SETTINGS).step(blind)


@pytest.mark.parametrize("normalise", ["token", "sequence"])
def test_the_token_budget_changes_memory_but_not_the_gradient(normalise):
    """Micro-batches carry the denominators of the whole batch."""
    settings = dataclasses.replace(SETTINGS, normalise=normalise)
    found = []
    for budget in (10**6, 60, 1):
        small = dataclasses.replace(settings, tokens_per_microbatch=budget)
        policy, metrics = step_once(mixed, small)
        found.append((gradients(policy), metrics))
    for grads, metrics in found[1:]:
        torch.testing.assert_close(grads, found[0][0], rtol=1e-4, atol=1e-7)
        assert metrics.loss == pytest.approx(found[0][1].loss, abs=1e-6)
        assert metrics.policy_tokens == found[0][1].policy_tokens
    assert found[2][1].padded_tokens == found[2][1].tokens < found[0][1].padded_tokens


def test_a_failed_episode_leaves_no_trace_but_its_count():
    """verl#6375, NeMo-RL#2207."""
    alone, without = step_once(mixed)
    joined, beside = step_once(lambda policy: [*mixed(policy), write_off(policy, "g0")])
    assert torch.equal(gradients(alone), gradients(joined))
    assert (without.failed_episodes, beside.failed_episodes) == (0, 1)
    assert (without.episodes, without.reward_mean) == (beside.episodes, beside.reward_mean)


def test_a_step_in_which_all_rewards_are_equal_changes_nothing_and_is_counted():
    """Adam would go on moving by its momentum, and weight decay would pull."""
    policy = tiny_policy()
    trainer = GRPOTrainer(policy, dataclasses.replace(SETTINGS, weight_decay=0.1))
    trainer.step(batch(policy, length_of_bytes))
    before = [p.clone() for p in policy.model.parameters()]
    metrics = trainer.step(batch(policy, lambda output: 1.0))
    assert all(map(torch.equal, before, policy.model.parameters()))
    assert (metrics.skipped, metrics.updates, metrics.zero_variance_groups) == (True, 0, 2)
    assert (trainer.state.step, trainer.state.updates, trainer.state.skipped) == (2, 1, 1)
    assert math.isnan(metrics.loss)
    assert metrics.reward_mean == 1.0


def test_a_step_of_failures_only_is_skipped():
    policy = tiny_policy()
    metrics = GRPOTrainer(policy, SETTINGS).step([write_off(policy, "g0")])
    assert metrics.skipped
    assert math.isnan(metrics.reward_mean)
    assert metrics.failed_episodes == 1


def test_several_updates_on_one_batch_move_the_ratio_from_one():
    settings = dataclasses.replace(SETTINGS, epochs=2, minibatches=2, lr=1e-2)
    _, metrics = step_once(mixed, settings)
    assert metrics.updates == 4
    assert metrics.ratio_first_error == 0.0
    assert metrics.logprob_gap_max <= 1e-5
    assert metrics.ratio_max > 1.01


def test_the_reference_stays_where_training_started():
    settings = dataclasses.replace(SETTINGS, kl="k3", kl_coef=0.1, lr=1e-2)
    policy = tiny_policy()
    trainer = GRPOTrainer(policy, settings)
    first = trainer.step(batch(policy, length_of_bytes))
    second = trainer.step(batch(policy, length_of_bytes, start=50))
    assert first.kl == 0.0
    assert second.kl > 1e-4


@pytest.mark.parametrize(
    "options",
    [
        {"ratio": "sequence", "normalise": "sequence", "clip_low": 3e-4, "clip_high": 4e-4},
        {"scale": "none", "normalise": "constant", "constant": 8.0},
        {"tis_cap": 2.0},
    ],
)
def test_gspo_dr_grpo_and_truncated_importance_sampling_take_a_step(options):
    policy, metrics = step_once(mixed, dataclasses.replace(SETTINGS, **options))
    assert bool(torch.isfinite(gradients(policy)).all())
    assert metrics.grad_norm > 0
    assert metrics.ratio_first_error <= 1e-6
    if "tis_cap" in options:
        assert metrics.tis_mean == pytest.approx(1.0, abs=1e-5)


def test_the_learning_rate_warms_up_over_updates():
    policy = tiny_policy()
    trainer = GRPOTrainer(policy, dataclasses.replace(SETTINGS, warmup_steps=4, minibatches=2))
    rates = [trainer.step(batch(policy, length_of_bytes, start=i)).lr for i in range(3)]
    assert rates == pytest.approx([0.5e-3, 1e-3, 1e-3])


def test_the_rate_falls_to_zero_over_the_last_steps_and_stays_there():
    policy = tiny_policy()
    settings = dataclasses.replace(SETTINGS, steps=5, cooldown_steps=3)
    trainer = GRPOTrainer(policy, settings)
    rates = [trainer.step(batch(policy, length_of_bytes, start=i)).lr for i in range(6)]
    assert rates == pytest.approx([1e-3, 1e-3, 7.5e-4, 5e-4, 2.5e-4, 0.0])


def test_the_gradient_is_clipped_and_its_norm_reported_before():
    policy, metrics = step_once(mixed, dataclasses.replace(SETTINGS, grad_clip=0.01))
    assert metrics.grad_norm > 0.01
    assert float(gradients(policy).norm()) == pytest.approx(0.01, rel=1e-3)


def test_two_trainings_with_one_seed_write_the_same_record():
    def train() -> list[dict]:
        policy = tiny_policy()
        trainer = GRPOTrainer(policy, SETTINGS)
        return [
            trainer.step(batch(policy, length_of_bytes, start=i)).record(timing=False)
            for i in range(3)
        ]

    assert repr(train()) == repr(train())


def test_the_policy_learns_to_say_what_is_rewarded():
    """A bandit: 1 for a token of a quarter of the vocabulary, 0 for any other."""
    policy = tiny_policy()

    def reward(output) -> float:
        return float(output[0] % 4 == 0)

    trainer = GRPOTrainer(policy, dataclasses.replace(SETTINGS, lr=1e-2))
    rewards = [
        trainer.step(batch(policy, reward, groups=2, size=16, start=1000 * i)).reward_mean
        for i in range(20)
    ]
    assert sum(rewards[:2]) / 2 < 0.45
    assert sum(rewards[-2:]) / 2 > 0.9


def test_micro_batches_stay_in_the_budget_and_hold_every_row_once():
    groups = microbatch_rows([5, 9, 5, 30, 1, 9], budget=20)
    assert groups == ((3,), (1, 5), (0, 2, 4))


def test_a_minibatch_takes_episodes_in_turn_and_never_splits_one():
    assert minibatch_rows(["a", "a", "b", "c", "d"], 2) == ((0, 1, 3), (2, 4))
    assert minibatch_rows(["a"], 3) == ((0,),)


def test_rows_without_a_policy_token_are_in_no_micro_batch():
    policy = tiny_policy()
    samples = [write_off(policy, "g0"), *batch(policy, length_of_bytes, groups=1, size=2)]
    made = micro_batches(policy, samples, range(3), budget=1000)
    assert [micro.rows for micro in made] == [(1, 2)]


def test_a_dead_group_halves_the_gradient_only_where_it_is_counted():
    """trl#6367: one live and one dead group of as many tokens."""

    def live(policy: Policy):
        return roll_out(policy, length_of_bytes, seeds=range(4), group="live", tokens=2)

    def half_dead(policy: Policy):
        dead = roll_out(policy, lambda _: 1.0, seeds=range(4), group="dead", tokens=2)
        return [*live(policy), *dead]

    free = dataclasses.replace(SETTINGS, grad_clip=1e9)
    _, alone = step_once(live, free)
    _, counted = step_once(half_dead, free)
    _, left_out = step_once(half_dead, dataclasses.replace(free, zero_variance="left_out"))
    assert counted.zero_variance_groups == left_out.zero_variance_groups == 1
    assert counted.grad_norm == pytest.approx(alone.grad_norm / 2, rel=1e-4)
    assert left_out.grad_norm == pytest.approx(alone.grad_norm, rel=1e-4)


def test_a_mismatch_is_an_error_for_people_that_names_a_lost_context_among_the_causes():
    policy = tiny_policy()
    samples = batch(policy, length_of_bytes, temperature=0.6)
    with pytest.raises(LabError, match="tokens off their context: none, every prompt repeats"):
        GRPOTrainer(policy, SETTINGS).step(samples)
