"""The hardware table's counts against networks that exist here."""

import dataclasses

import pytest
import torch

from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import collate, hidden_states
from cua_lab.recipes import GrpoSettings, LoraSettings, TrainerSettings
from cua_lab.training.hardware import (
    CARDS,
    Assumed,
    memory_of,
    real_config,
    saved_bytes,
    step_seconds,
)
from cua_lab.training.trainer import GRPOTrainer
from tests.training.toys import batch, roll_out, tiny_policy

LORA = TrainerSettings(lora=LoraSettings(r=4, alpha=8))


def trained(place: TrainerSettings) -> GRPOTrainer:
    trainer = GRPOTrainer(tiny_policy(), GrpoSettings(lr=1e-3), place=place)
    trainer.step(batch(tiny_policy(), lambda output: float(sum(output) % 7)))
    return trainer


@pytest.mark.parametrize("place", [TrainerSettings(), LORA], ids=["whole", "lora"])
def test_weights_gradients_and_optimizer_are_counted_to_the_byte(place: TrainerSettings) -> None:
    trainer = trained(place)
    found = memory_of(tiny_policy().model.config, place, tokens=64)
    own = list(trainer.policy.model.parameters())
    learning = [p for p in own if p.requires_grad]
    frozen = sum(p.nbytes for p in own if not p.requires_grad)
    assert found.learning == sum(p.numel() for p in learning)
    held = found.parts["weights"] + found.parts.get("adapters", 0)
    assert held == sum(p.nbytes for p in own)
    assert found.parts["weights"] == (frozen or held)
    assert found.parts["gradients"] == sum(p.grad.nbytes for p in learning if p.grad is not None)
    states = [s for p in learning for s in trainer.optimizer.state[p].values() if s.numel() > 1]
    assert found.parts["AdamW"] == sum(state.nbytes for state in states)


def kept_by(policy: Policy, count: int) -> tuple[int, int]:
    """Bytes that autograd keeps of a real forward pass, and its padded tokens."""
    from cua_lab.policy.scoring import Example

    samples = roll_out(policy, lambda _: 1.0, seeds=range(count), group="g", text="click " * 40)
    examples = [Example(s.stitched.tokens, s.pixel_values, s.image_grid_thw) for s in samples]
    made = collate(policy, examples)
    module: torch.nn.Module = policy.model  # type: ignore[assignment]
    return saved_bytes(lambda: hidden_states(policy, made), module), made.ids.numel()


def test_activations_are_those_that_a_forward_pass_keeps() -> None:
    policy = tiny_policy()
    kept, tokens = kept_by(policy, 8)
    found = memory_of(policy.model.config, TrainerSettings(), tokens=tokens, image_share=0.0)
    assert found.parts["activations"] == pytest.approx(kept, rel=0.25)


def test_the_published_shapes_have_the_published_numbers_of_weights() -> None:
    for size, published in (("2b", 2.13e9), ("4b", 4.44e9)):
        found = memory_of(real_config(size), TrainerSettings(), tokens=1)
        assert found.parameters == pytest.approx(published, rel=0.005)


def test_recomputing_saves_memory_and_costs_a_third_of_the_time() -> None:
    config = tiny_policy().model.config
    plain, again = TrainerSettings(), TrainerSettings(gradient_checkpointing=True)
    assert (
        memory_of(config, again, tokens=4096).parts["activations"]
        < memory_of(config, plain, tokens=4096).parts["activations"]
    )
    seconds = [
        step_seconds(config, CARDS[0], place, trained=1000, sampled=100, at_once=10)["train"]
        for place in (plain, again)
    ]
    assert seconds[1] / seconds[0] == pytest.approx(4 / 3)


def test_twice_the_share_of_the_peak_is_half_the_time() -> None:
    config = tiny_policy().model.config
    numbers = {"trained": 1000, "sampled": 100, "at_once": 10}
    slow = step_seconds(config, CARDS[0], LORA, **numbers)
    fast = dataclasses.replace(Assumed(), of_peak=2 * Assumed().of_peak)
    assert step_seconds(config, CARDS[0], LORA, **numbers, assumed=fast)["train"] == (
        pytest.approx(slow["train"] / 2)
    )
