"""Checkpoints: going on is as if one had never stopped, and a torn one is never picked up."""

import dataclasses
import json

import pytest
import torch

from cua_lab.errors import LabError
from cua_lab.policy.policy import load_policy
from cua_lab.recipes import GrpoSettings
from cua_lab.training.checkpoint import (
    corruption_of,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from cua_lab.training.trainer import GRPOTrainer
from tests.training.toys import batch, tiny_policy

SETTINGS = GrpoSettings(lr=1e-3, warmup_steps=3, kl="k3", kl_coef=0.01)


def steps(trainer: GRPOTrainer, count: int) -> list[str]:
    """So many steps on samples that depend on the weights and on the step's number."""
    return [
        repr(
            trainer.step(
                batch(trainer.policy, lambda o: float(sum(o) % 7), start=1000 * trainer.state.step)
            ).record(timing=False)
        )
        for _ in range(count)
    ]


def weights(trainer: GRPOTrainer) -> list[torch.Tensor]:
    return [p.detach().clone() for p in trainer.policy.model.parameters()]


def saved(root, count: int = 1, **options) -> GRPOTrainer:
    """A trainer that has saved after each of `count` steps."""
    trainer = GRPOTrainer(tiny_policy(), SETTINGS)
    for _ in range(count):
        steps(trainer, 1)
        save_checkpoint(root, trainer, **options)
    return trainer


def test_two_steps_and_two_after_a_resume_are_four_steps_to_the_last_bit(tmp_path):
    whole = GRPOTrainer(tiny_policy(), SETTINGS)
    expected = steps(whole, 4)
    first = GRPOTrainer(tiny_policy(), SETTINGS)
    found = steps(first, 2)
    torch.manual_seed(123)
    path = save_checkpoint(tmp_path, first, extra={"stage": "click"})
    drawn = torch.rand(3)
    second = GRPOTrainer(tiny_policy(), SETTINGS)
    torch.manual_seed(456)
    assert load_checkpoint(path, second) == {"stage": "click"}
    assert torch.equal(torch.rand(3), drawn)
    found += steps(second, 2)
    assert found == expected
    assert all(map(torch.equal, weights(second), weights(whole)))
    assert second.state == whole.state


def test_a_checkpoint_is_a_plain_model_folder_with_the_rest_out_of_the_way(tmp_path):
    """Engines load every *.safetensors they find beside config.json."""
    trainer = saved(tmp_path)
    path = tmp_path / "step-000001"
    loaded = load_policy(path)
    assert all(map(torch.equal, loaded.model.parameters(), trainer.policy.model.parameters()))
    assert [file.name for file in path.glob("*.safetensors")] == ["model.safetensors"]
    assert not [f for f in path.rglob("*") if f.suffix in (".pt", ".pth", ".bin", ".pkl")]


def test_the_last_ones_are_kept_and_the_newest_is_found(tmp_path):
    saved(tmp_path, 3, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000003"]
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.name == "step-000003"
    assert latest_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize("name", ["model.safetensors", "training/optimizer.safetensors"])
@pytest.mark.parametrize("harm", ["cut", "flip", "remove"])
def test_a_torn_checkpoint_is_passed_over_for_the_one_before(tmp_path, name, harm):
    """A power cut after the rename can leave a file short, or full of zeros."""
    saved(tmp_path, 2)
    file = tmp_path / "step-000002" / name
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content[:-7] if harm == "cut" else content)
    if harm == "remove":
        file.unlink()
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.name == "step-000001"
    with pytest.raises(LabError, match=f"torn: {name}"):
        load_checkpoint(tmp_path / "step-000002", GRPOTrainer(tiny_policy(), SETTINGS))


def test_a_run_killed_while_it_wrote_leaves_nothing_to_pick_up(tmp_path, monkeypatch):
    trainer = saved(tmp_path)
    steps(trainer, 1)
    with monkeypatch.context() as patch:
        patch.setattr("cua_lab.training.checkpoint._rng_tensors", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            save_checkpoint(tmp_path, trainer)
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.name == "step-000001"
    save_checkpoint(tmp_path, trainer)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000001", "step-000002"]


def test_a_state_that_was_never_written_to_the_end_is_torn(tmp_path):
    saved(tmp_path)
    path = tmp_path / "step-000001"
    (path / "training/state.json").write_text('{"trainer": {')
    assert "state.json cannot be read" in str(corruption_of(path))
    assert latest_checkpoint(tmp_path) is None


def test_saving_a_step_again_replaces_it(tmp_path):
    trainer = saved(tmp_path)
    save_checkpoint(tmp_path, trainer, extra={"again": True})
    state = json.loads((tmp_path / "step-000001/training/state.json").read_text())
    assert state["extra"] == {"again": True}


def test_another_network_is_refused_in_words(tmp_path):
    from cua_lab.policy.policy import build_policy
    from cua_lab.policy.shape import Shape
    from cua_lab.policy.tokenizer import Corpus

    saved(tmp_path)
    other = build_policy(Shape(hidden=48, layers=2, vision_hidden=32), Corpus(("a",)), seed=0)
    trainer = GRPOTrainer(other, dataclasses.replace(SETTINGS, kl="none", kl_coef=0.0))
    with pytest.raises(LabError, match="holds another network"):
        load_checkpoint(tmp_path / "step-000001", trainer)
