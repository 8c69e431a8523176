"""One door for weights: what does not fit is one error with a count and the first name."""

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from cua_lab.engine.engine import Engine
from cua_lab.errors import LabError
from cua_lab.policy.policy import Policy, build_policy, load_policy
from cua_lab.policy.shape import Shape
from cua_lab.policy.tokenizer import Corpus
from cua_lab.policy.weights import weights_for
from cua_lab.serving.server import create_app

Tensors = dict[str, torch.Tensor]
TINY = Shape(hidden=32, layers=2, vision_hidden=32, mlp_ratio=2)
EMBED = "model.language_model.embed_tokens.weight"
LAYER = "model.language_model.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    policy = build_policy(TINY, Corpus(("click the red button",) * 2), seed=0)
    return policy.save(tmp_path_factory.mktemp("weights") / "policy")


def changed(saved: Path, folder: Path, change: Callable[[Tensors], Tensors]) -> Path:
    """A copy of the checkpoint with other tensors."""
    shutil.copytree(saved, folder)
    tensors = change(load_file(saved / "model.safetensors"))
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    return folder


def pushed(engine: Engine, folder: Path) -> httpx.Response:
    """The answer to new weights over HTTP."""

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(engine))
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as http:
            body = {"model_path": str(folder), "weight_version": "bad"}
            return await http.post("/update_weights_from_disk", json=body)

    return asyncio.run(post())


def tied(saved: Path, folder: Path, change: Callable[[Tensors], Tensors] = dict) -> Path:
    """The checkpoint as every small Qwen-VL is: one matrix for words in and out."""

    def without_head(tensors: Tensors) -> Tensors:
        return change({name: t for name, t in tensors.items() if name != "lm_head.weight"})

    changed(saved, folder, without_head)
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"] = True
    config["text_config"]["tie_word_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def with_value(name: str, value: float) -> Callable[[Tensors], Tensors]:
    def change(tensors: Tensors) -> Tensors:
        tensors[name].view(-1)[3] = value
        return tensors

    return change


MISFITS: Mapping[str, tuple[Callable[[Tensors], Tensors], str]] = {
    "a prefix": (
        lambda t: {"module." + name: x for name, x in t.items()},
        r"(\d+) of \1 tensors are missing, first 'lm_head.weight'.*prefix 'module\.'",
    ),
    "no vision tower": (
        lambda t: {name: x for name, x in t.items() if "visual" not in name},
        r"\d+ of \d+ tensors are missing, first 'model\.visual",
    ),
    "another name for one part": (
        lambda t: {name.replace("visual.merger", "visual.joiner"): x for name, x in t.items()},
        r"6 of \d+ tensors are missing, first 'model\.visual\.merger",
    ),
    "one tensor short": (
        lambda t: {name: x for name, x in t.items() if name != LAYER},
        r"1 of \d+ tensors are missing, first 'model\.language_model\.layers\.0",
    ),
    "a layer too many": (
        lambda t: t | {LAYER.replace("layers.0", "layers.2"): t[LAYER].clone()},
        r"1 are not the network's, first 'model\.language_model\.layers\.2",
    ),
    "another shape": (
        lambda t: t | {LAYER: t[LAYER][:8]},
        r"1 have another shape, first .*q_proj.*\(8, 32\), expected \(32, 32\)",
    ),
    "attached adapters": (
        lambda t: {n.replace("q_proj.weight", "q_proj.base_layer.weight"): x for n, x in t.items()},
        r"2 of \d+ tensors are missing.*merge them before saving",
    ),
    "NaN": (with_value(LAYER, float("nan")), r"1 of \d+ tensors hold NaN or infinity, first"),
    "infinity": (with_value(EMBED, float("inf")), r"1 of \d+ tensors hold NaN or infinity, first"),
    "integers": (
        lambda t: t | {LAYER: (t[LAYER] * 100).to(torch.int8)},
        r"q_proj.weight is stored as I8",
    ),
    "float8": (
        lambda t: t | {LAYER: t[LAYER].to(torch.float8_e4m3fn)},
        r"q_proj.weight is stored as F8_E4M3",
    ),
}


@pytest.mark.parametrize("kind", MISFITS)
def test_a_checkpoint_that_does_not_fit_is_never_loaded_and_never_served(
    kind: str, saved: Path, tmp_path: Path
) -> None:
    """transformers#47408, slime#1724, speculators#1131: names that do not fit loaded as noise."""
    change, words = MISFITS[kind]
    folder = changed(saved, tmp_path / "bad", change)
    with pytest.raises(LabError, match=words):
        load_policy(folder)
    policy = load_policy(saved)
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    engine = Engine(policy)
    answer = pushed(engine, folder)
    assert (answer.status_code, answer.json()["success"]) == (400, False)
    assert re.search(words, answer.json()["message"])
    assert engine.weight_version == "default"
    after = policy.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    engine.close()


def test_a_torn_file_and_a_missing_shard_are_named(saved: Path, tmp_path: Path) -> None:
    torn = shutil.copytree(saved, tmp_path / "torn")
    whole = (torn / "model.safetensors").read_bytes()
    (torn / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LabError, match=r"model\.safetensors is torn"):
        load_policy(torn)
    sharded = tmp_path / "sharded"
    load_policy(saved).model.save_pretrained(sharded, max_shard_size="100KB")
    for file in saved.iterdir():
        if not (sharded / file.name).exists() and file.suffix != ".safetensors":
            shutil.copy(file, sharded)
    assert load_policy(sharded).parameters == load_policy(saved).parameters
    shard = sorted(sharded.glob("model-0*"))[-1]
    shard.unlink()
    with pytest.raises(LabError, match=f"names {shard.name}, which is missing"):
        load_policy(sharded)


def test_a_folder_of_weights_alone_is_taken_live(saved: Path, tmp_path: Path) -> None:
    """What trainers sync has no tokenizer, and at times no config; sglang takes both."""
    policy = load_policy(saved)
    other = build_policy(TINY, Corpus(("click the red button",) * 2), seed=1)
    for number, files in enumerate((("model.safetensors", "config.json"), ("model.safetensors",))):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in files:
            shutil.copy(other.save(tmp_path / "other") / name, folder)
        found = weights_for(policy.model, folder)
        wanted = other.model.state_dict()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_half_precision_is_taken_and_cast(saved: Path, tmp_path: Path) -> None:
    """Trainers sync bfloat16 to an engine in float32."""
    half = lambda t: {name: x.bfloat16() for name, x in t.items()}  # noqa: E731
    policy = load_policy(saved)
    found = weights_for(policy.model, changed(saved, tmp_path / "half", half))
    assert found[LAYER].dtype == torch.float32
    assert torch.equal(found[LAYER], policy.model.state_dict()[LAYER].bfloat16().float())


def test_tied_matrices_take_a_tied_file_and_refuse_two_that_differ(
    saved: Path, tmp_path: Path
) -> None:
    """vllm#6758: an untied file pushed to a tied policy was a success, 14.7 nats off."""
    folder = tied(saved, tmp_path / "tied")
    policy = load_policy(folder)
    assert policy.model.lm_head.weight is policy.model.get_input_embeddings().weight
    weights_for(policy.model, folder)
    equal = tied(saved, tmp_path / "equal", lambda t: t | {"lm_head.weight": t[EMBED].clone()})
    weights_for(policy.model, equal)
    with pytest.raises(LabError, match="they differ"):
        weights_for(policy.model, saved)
    two = tied(saved, tmp_path / "two", lambda t: t | {"lm_head.weight": t[EMBED] + 1})
    with pytest.raises(LabError, match="they differ"):
        load_policy(two)
    with pytest.raises(LabError, match=r"1 of \d+ tensors are missing, first 'lm_head\.weight'"):
        weights_for(load_policy(saved).model, folder)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("text_config", "rope_parameters", {"rope_theta": 3.0}),
        ("text_config", "rms_norm_eps", 0.01),
        ("vision_config", "num_heads", 1),
    ],
)
def test_equal_tensors_under_another_meaning_are_refused_live(
    part: str, name: str, value: Any, saved: Path, tmp_path: Path
) -> None:
    """Heads can be cut another way through matrices of the same shape."""
    folder = shutil.copytree(saved, tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    assert config[part][name] != value
    config[part][name] = config[part][name] | value if isinstance(value, dict) else value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(LabError, match=rf"{part}\.{name} is .*, the policy has"):
        weights_for(load_policy(saved).model, folder)


def test_what_is_saved_can_be_read_by_whoever_reads_its_config(saved: Path) -> None:
    """safetensors writes 0600; an engine under another user cannot read that."""
    modes = {file.name: file.stat().st_mode & 0o777 for file in saved.iterdir()}
    assert modes["model.safetensors"] == modes["config.json"]


@pytest.mark.parametrize("size", ["edges", "pixels", "top level"])
def test_a_processor_is_found_where_transformers_5_saves_it(
    size: str, saved: Path, tmp_path: Path
) -> None:
    """2U1/Qwen-VL-Series-Finetune#34: processor_config.json alone; and each way to write bounds."""
    folder = shutil.copytree(saved, tmp_path / "v5")
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    bounds = {"min_pixels": 1024, "max_pixels": 4096}
    if size == "pixels":
        settings["size"] = bounds
    elif size == "top level":
        settings = {name: value for name, value in settings.items() if name != "size"} | bounds
    else:
        settings["size"] = {"shortest_edge": 1024, "longest_edge": 4096}
    (folder / "preprocessor_config.json").unlink()
    (folder / "processor_config.json").write_text(
        json.dumps({"processor_class": "Qwen3VLProcessor", "image_processor": settings})
    )
    policy = load_policy(folder)
    geometry = policy.vision.geometry
    assert (geometry.min_pixels, geometry.max_pixels) == (1024, 4096)
    assert load_policy(policy.save(tmp_path / "again")).vision.geometry == geometry


def test_a_policy_without_a_processor_is_told_which_files_to_copy(
    saved: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(saved, tmp_path / "bare")
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(LabError, match=r"neither preprocessor_config\.json nor processor_config"):
        load_policy(folder)


def test_attached_adapters_are_neither_saved_nor_served(saved: Path, tmp_path: Path) -> None:
    """miles#2075, trl#2698: an engine under adapters sampled from the base, 1.5 to 2.2 nats off."""
    peft = pytest.importorskip("peft")
    policy: Policy = load_policy(saved)
    engine = Engine(policy)
    adapted = peft.get_peft_model(policy.model, peft.LoraConfig(target_modules=["q_proj"]))
    with pytest.raises(LabError, match="2 layers of the policy carry adapters"):
        policy.save(tmp_path / "adapted")
    assert not (tmp_path / "adapted").exists()
    with pytest.raises(LabError, match="merge the adapters first"):
        Engine(policy)
    with pytest.raises(LabError, match="merge the adapters first"):
        engine.weights_updated("adapted")
    adapted.merge_and_unload()
    engine.weights_updated("merged")
    assert engine.weight_version == "merged"
    engine.close()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", "{", r"config\.json cannot be read as a JSON object"),
        ("config.json", "[]", r"config\.json cannot be read as a JSON object"),
        ("config.json", '{"model_type": "qwen3_vl", "text_config": 5}', "cannot be loaded"),
        ("tokenizer.json", "{", "the tokenizer of .* cannot be loaded"),
        ("preprocessor_config.json", "[]", "the image processor of .* cannot be loaded"),
        ("model.safetensors", "", "is torn or no safetensors file"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(
    name: str, content: str, words: str, saved: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(saved, tmp_path / "bad")
    (folder / name).write_text(content)
    with pytest.raises(LabError, match=words) as error:
        load_policy(folder)
    assert "\n" not in str(error.value)
