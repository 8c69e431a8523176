"""The fine-tuning loop: exact gradients, a cosine, and no memory of having been stopped."""

import json
from pathlib import Path

import pytest
import torch

from cua_lab.errors import LabError
from cua_lab.policy.policy import load_policy
from cua_lab.policy.scoring import collate, score
from cua_lab.recipes.sft_recipe import TrainSettings
from cua_lab.training.finetune import rate_at
from cua_lab.training.precision import precision_of
from tests.support_sft import draw, trainer


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return draw(tmp_path_factory.mktemp("drawn"))


def weights(file: Path, *overrides: str) -> dict[str, torch.Tensor]:
    made, _, _ = trainer(file, *overrides)
    list(made)
    return made.policy.model.state_dict()


def test_micro_batches_change_memory_and_not_the_gradient(file: Path) -> None:
    """A mean of means would weigh short answers more (huggingface/blog#2414)."""
    whole, _, _ = trainer(file)
    cut, _, _ = trainer(file, "train.micro_batch=3")
    one, other = next(iter(whole)), next(iter(cut))
    assert one.loss == pytest.approx(other.loss, rel=1e-6)
    assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-4)
    assert one.tokens == other.tokens


def test_activation_checkpoints_change_memory_and_not_the_weights(file: Path) -> None:
    plain = weights(file, "train.steps=2", "lora.r=4")
    made, _, _ = trainer(file, "train.steps=2", "lora.r=4", "model.gradient_checkpointing=true")
    assert any(getattr(m, "gradient_checkpointing", False) for m in made.policy.model.modules())
    list(made)
    saved = made.policy.model.state_dict()
    assert all(torch.allclose(plain[name], saved[name], atol=1e-6) for name in plain)


def test_the_loss_falls_and_held_out_rows_are_only_measured(file: Path) -> None:
    made, _, _ = trainer(file, "train.steps=12", "data.held_out=4", "train.measure_every=6")
    history = list(made)
    assert history[-1].loss < history[0].loss
    assert [m.step for m in history if m.check is not None] == [6, 12]
    assert {index for batch in made._order for index in batch} == set(range(8))
    assert not made.policy.model.training
    with pytest.raises(LabError, match="held_out is 12 of 12 rows: none is left"):
        trainer(file, "data.held_out=12")


def test_epochs_count_updates_over_the_rows_that_are_trained_on(file: Path) -> None:
    made, _, _ = trainer(file, "train.steps=null", "train.epochs=3", "data.held_out=2")
    assert made.steps == 8  # 3 x 10 rows in batches of 4, rounded up


def test_the_rate_rises_and_follows_a_cosine() -> None:
    settings = TrainSettings(lr=1.0e-2, warmup=0.2, final_lr=0.1)
    rates = [rate_at(step, 10, settings) for step in range(10)]
    assert rates[:3] == pytest.approx([1e-2 / 3, 2e-2 / 3, 1e-2])
    assert rates == sorted(rates[:3]) + sorted(rates[3:], reverse=True)
    assert rates[6] == pytest.approx(1e-2 * (0.1 + 0.9 * 0.5))
    assert rate_at(10, 10, settings) == pytest.approx(1e-3)


def test_what_learns_is_kept_in_float32() -> None:
    cpu = precision_of("cpu", "auto", section="model")
    assert (cpu.device, cpu.bfloat16) == ("cpu", False)
    wanted = precision_of("cpu", "bfloat16", section="model")
    assert wanted.stored(frozen=True) == "bfloat16"
    assert wanted.stored(frozen=False) == "float32"
    if not torch.cuda.is_available():
        with pytest.raises(LabError, match="finds no GPU"):
            precision_of("cuda", "auto", section="model")


def test_bfloat16_arithmetic_trains_and_scores_in_float32(file: Path) -> None:
    full, _, _ = trainer(file, "train.steps=1")
    half, _, _ = trainer(file, "train.steps=1", "model.precision=bfloat16")
    exact, rounded = next(iter(full)), next(iter(half))
    assert rounded.loss == pytest.approx(exact.loss, rel=0.02)
    assert {p.dtype for p in half.policy.model.parameters()} == {torch.float32}


def test_metrics_are_json(file: Path) -> None:
    made, _, _ = trainer(file, "train.steps=1")
    first = next(iter(made))
    assert json.loads(json.dumps({"loss": first.loss, "norm": first.grad_norm}))


def test_adapters_learn_in_float32_on_a_bfloat16_policy(file: Path, tmp_path: Path) -> None:
    """As a 7B checkpoint is trained; its vision tower once left bfloat16 at the rotary angles."""
    checkpoint = trainer(file)[0].policy.save(tmp_path / "start")
    started = (f"policy.checkpoint={checkpoint}", "lora.r=4", "train.steps=2")
    made, _, adapter = trainer(file, *started, "model.precision=bfloat16")
    exact, _, _ = trainer(file, *started)
    learning = {p.dtype for p in made.policy.model.parameters() if p.requires_grad}
    frozen = {p.dtype for p in made.policy.model.parameters() if not p.requires_grad}
    assert (learning, frozen) == ({torch.float32}, {torch.bfloat16})
    losses = [[m.loss for m in one] for one in (made, exact)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    adapter.merge()
    served = load_policy(made.policy.save(tmp_path / "model"), dtype="bfloat16")
    item = made._data.example(0)
    batch = collate(served, [item.example])
    loss_mask = torch.from_numpy(item.loss_mask)[None]
    with torch.no_grad():
        loss = -float(score(served, batch, loss_mask).logprobs[loss_mask].mean())
    assert loss == pytest.approx(losses[0][-1], rel=0.2)
