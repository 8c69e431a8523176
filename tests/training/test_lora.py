"""Adapters: no change at first, the same distribution merged and unmerged."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cua_lab.errors import LabError
from cua_lab.policy import scoring
from cua_lab.policy.policy import Policy, load_policy
from cua_lab.policy.scoring import collate, score
from cua_lab.recipes.trainer_settings import LoraSettings
from cua_lab.run.sft_job import export
from cua_lab.training.finetune import Finetune
from cua_lab.training.lora import Adapter, attach
from tests.support_sft import draw, trainer


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return draw(tmp_path_factory.mktemp("drawn"))


def logprobs(policy: Policy, made: Finetune) -> torch.Tensor:
    items = [made._data.example(index) for index in range(4)]
    batch = collate(policy, [item.example for item in items])
    loss_mask = torch.zeros_like(batch.ids, dtype=torch.bool)
    for row, item in enumerate(items):
        loss_mask[row, : len(item.loss_mask)] = torch.from_numpy(item.loss_mask)
    with torch.no_grad():
        return score(policy, batch, loss_mask).logprobs[loss_mask]


def shaken(adapter: Adapter) -> None:
    """Updates that a training would have left, and large ones."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in adapter.policy.model.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("vision", [False, True])
def test_merged_and_unmerged_say_the_same_within_1e_5(
    file: Path, tmp_path, vision: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = ("q_proj", "v_proj", "down_proj", "qkv", "proj", "linear_fc1")
    made, _, _ = trainer(file)
    policy = made.policy
    monkeypatch.setattr(scoring, "writes_out", lambda model: False)  # adapters want the module
    before = logprobs(policy, made)
    names = set(policy.model.state_dict())
    adapter = attach(policy, LoraSettings(r=4, alpha=8, targets=targets, vision=vision))
    # Fresh adapters change nothing; another way through the network moves the last bits.
    assert (logprobs(policy, made) - before).abs().max() < 1e-5
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


def harmed(folder: Path, change) -> None:
    """Other tensors in a saved adapter."""
    file = folder / "adapter_model.safetensors"
    save_file(change(load_file(file)), file)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: dict(list(t.items())[1:]), r"1 of 28 tensors are missing"),
        (lambda t: t | {"base_model.model.other": t[min(t)].clone()}, r"1 are not the network's"),
        (lambda t: t | {min(t): t[min(t)][:1].clone()}, r"1 have another shape"),
        (lambda t: t | {min(t): t[min(t)] * float("nan")}, r"1 of 28 tensors hold NaN"),
    ],
)
def test_an_adapter_that_does_not_fit_changes_nothing(
    file: Path, tmp_path: Path, change, words: str
) -> None:
    """peft reports what it did not find, and a report that nobody reads is a random adapter."""
    made, _, adapter = trainer(file, "lora.r=4")
    shaken(adapter)
    adapter.save(tmp_path)
    harmed(tmp_path, change)
    before = logprobs(made.policy, made)
    with pytest.raises(LabError, match=words + r".*resume with the recipe"):
        adapter.load(tmp_path)
    assert torch.equal(logprobs(made.policy, made), before)


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_a_matrix_that_two_layers_share_gets_no_adapter(file: Path, target: str) -> None:
    """peft#2018: merged into tied embeddings, 2.30 adapted became 3.47 exported."""
    policy = trainer(file)[0].policy
    attach(policy, LoraSettings(r=4, targets=("lm_head",))).merge()  # its own matrix: no harm
    policy.model.lm_head.weight = policy.model.get_input_embeddings().weight
    with pytest.raises(LabError, match=rf"{target}.*tied"):
        attach(policy, LoraSettings(r=4, targets=("q_proj", target)))


def test_a_merge_that_moves_a_row_is_not_exported(file: Path, tmp_path: Path) -> None:
    """One row is scored before and after: a merge has no other witness."""
    made, prompt_format, adapter = trainer(file, "lora.r=4")
    shaken(adapter)
    scores = [made.probe(), made.probe() + 0.01]
    with pytest.raises(LabError, match=r"moved a log-probability .* by 0\.01"):
        export(made.policy, prompt_format, tmp_path, adapter, probe=lambda: scores.pop(0))
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    assert not (tmp_path / "model").exists()
    again, prompt_format, adapter = trainer(file, "lora.r=4")
    shaken(adapter)
    export(again.policy, prompt_format, tmp_path, adapter, probe=again.probe)
    assert (tmp_path / "model" / "config.json").is_file()


def test_a_saved_adapter_can_be_read_by_whoever_reads_its_config(
    file: Path, tmp_path: Path
) -> None:
    trainer(file, "lora.r=4")[2].save(tmp_path)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes["adapter_model.safetensors"] == modes["adapter_config.json"]
