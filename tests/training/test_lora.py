"""Adapters: no change at first, the same distribution merged and unmerged."""

from pathlib import Path

import pytest
import torch

from cua_lab.errors import LabError
from cua_lab.policy.policy import Policy, load_policy
from cua_lab.policy.scoring import collate, score
from cua_lab.recipes.sft_recipe import LoraSettings
from cua_lab.training.finetune import Finetune
from cua_lab.training.lora import Adapter, attach
from tests.support_sft import draw, trainer


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return draw(tmp_path_factory.mktemp("drawn"))


def logprobs(policy: Policy, made: Finetune) -> torch.Tensor:
    items = [made._data.example(index) for index in range(4)]
    batch = collate(policy, [item.example for item in items])
    where = torch.zeros_like(batch.ids, dtype=torch.bool)
    for row, item in enumerate(items):
        where[row, : len(item.loss_mask)] = torch.from_numpy(item.loss_mask)
    with torch.no_grad():
        return score(policy, batch, where).logprobs[where]


def shaken(adapter: Adapter) -> None:
    """Updates that a training would have left, and large ones."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in adapter.policy.model.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("vision", [False, True])
def test_merged_and_unmerged_say_the_same_within_1e_5(file: Path, tmp_path, vision: bool) -> None:
    targets = ("q_proj", "v_proj", "down_proj", "qkv", "proj", "linear_fc1")
    made, _, _ = trainer(file)
    policy = made.policy
    before = logprobs(policy, made)
    names = set(policy.model.state_dict())
    adapter = attach(policy, LoraSettings(r=4, alpha=8, targets=targets, vision=vision))
    assert torch.equal(logprobs(policy, made), before)  # fresh adapters change nothing
    touched = {n.split(".lora_")[0] for n, _ in policy.model.named_parameters() if "lora_" in n}
    assert any("visual" in name for name in touched) == vision
    assert not any("patch_embed" in name for name in touched)
    shaken(adapter)
    unmerged = logprobs(policy, made)
    assert (unmerged - before).abs().max() > 0.1
    adapter.merge()
    assert (logprobs(policy, made) - unmerged).abs().max() < 1e-5
    assert set(policy.model.state_dict()) == names
    served = load_policy(policy.save(tmp_path / "model"))
    assert (logprobs(served, made) - unmerged).abs().max() < 1e-5


def test_an_adapter_is_saved_alone_and_put_back(file: Path, tmp_path: Path) -> None:
    made, _, adapter = trainer(file, "lora.r=4")
    shaken(adapter)
    wanted = logprobs(made.policy, made)
    adapter.save(tmp_path)
    other, _, fresh = trainer(file, "lora.r=4")
    fresh.load(tmp_path)
    assert torch.equal(logprobs(other.policy, other), wanted)
    with pytest.raises(LabError, match=r"has no adapter_model.safetensors"):
        fresh.load(tmp_path / "none")


def test_only_the_adapters_learn(file: Path) -> None:
    policy = trainer(file, "lora.r=4")[0].policy
    learning = [name for name, p in policy.model.named_parameters() if p.requires_grad]
    assert learning
    assert all("lora_" in name for name in learning)


def test_targets_that_fit_nothing_are_answered_with_the_names_there_are(file: Path) -> None:
    with pytest.raises(LabError, match=r"\['w1'\] fit no layer .* called .*q_proj"):
        trainer(file, "lora.targets=[w1]")
