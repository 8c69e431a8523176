"""The SFT job: a folder that goes on where it was stopped and exports what engines load."""

import asyncio
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cua_lab.dataset.grounding import read_samples
from cua_lab.dataset.predict import predict_with_policy, questions_of
from cua_lab.dataset.prompt_format import read_prompt_format
from cua_lab.errors import LabError
from cua_lab.files import watch_faults
from cua_lab.policy.policy import load_policy
from cua_lab.recipes.sft_recipe import load_sft_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.sft_job import run_sft
from cua_lab.viz.runfiles import read_run
from tests.run.support_kill import Death, Killed, leftovers, steady
from tests.support_sft import draw, qwen25, recipe


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return draw(tmp_path_factory.mktemp("drawn"))


class Stopped(Exception):
    """As a power cut."""


def stop_after(step: int):
    def on_step(metrics) -> None:
        if metrics.step == step:
            raise Stopped

    return on_step


def test_killed_at_every_kind_of_write_it_ends_with_the_same_bits(file, tmp_path) -> None:
    """Also in the export: `model/` is there whole, or the training goes on."""
    chosen = recipe("train.checkpoint_every=2", "train.keep_checkpoints=1")
    run_sft(chosen, file, RunFolder.create(tmp_path / "whole", resume=False))
    path, met = tmp_path / "killed", set()
    sites = ("metrics.jsonl", "step-000004", "model", "summary.json", ".step-000002.partial")
    while True:
        death = Death(
            lambda name, where, _: steady(where) in sites and (name, steady(where)) not in met
        )
        try:
            with watch_faults(death):
                folder = RunFolder.create(path, resume=RunFolder(path).started)
                run_sft(chosen, file, folder)
            break
        except Killed:
            met.add(death.seen[-1])
    assert {("before rename", "model"), ("after rename", "model")} <= met
    assert {("before rename", "step-000004"), ("after append", "metrics.jsonl")} <= met
    for name in ("metrics.jsonl", "model/model.safetensors"):
        assert (path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert [step.name for step in (path / "checkpoint").iterdir()] == ["step-000004"]
    assert leftovers(path) == []


@pytest.mark.parametrize("lora", [(), ("lora.r=4", "lora.dropout=0.1")], ids=["whole", "lora"])
def test_going_on_gives_the_same_bits_as_never_having_stopped(file, tmp_path, lora) -> None:
    chosen = recipe(*lora)
    run_sft(chosen, file, RunFolder.create(tmp_path / "a", resume=False))
    with pytest.raises(Stopped):
        run_sft(
            chosen,
            file,
            RunFolder.create(tmp_path / "b", resume=False),
            on_step=stop_after(3),
        )
    assert not (tmp_path / "b/model").exists()
    summary = run_sft(chosen, file, RunFolder.create(tmp_path / "b", resume=True))
    assert summary["steps"] == 4
    one, other = (load_file(tmp_path / run / "model/model.safetensors") for run in "ab")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    lines = [(tmp_path / run / "metrics.jsonl").read_text() for run in "ab"]
    assert lines[0] == lines[1]
    assert [json.loads(line)["step"] for line in lines[0].splitlines()] == [1, 2, 3, 4]


def test_the_export_is_a_plain_checkpoint_that_remembers_how_it_is_asked(file, tmp_path) -> None:
    run_sft(recipe("lora.r=4"), file, RunFolder.create(tmp_path, resume=False))
    served = load_policy(tmp_path / "model")
    assert not any("lora" in name for name in served.model.state_dict())
    assert read_prompt_format(tmp_path / "model").actions == ("click",)
    adapter = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert (adapter["r"], adapter["lora_alpha"]) == (4, 32)
    checkpoint = next((tmp_path / "checkpoint").iterdir())
    assert not (checkpoint / "model.safetensors").exists()  # the adapter alone


def test_a_report_reads_its_metrics_as_a_warm_up(file, tmp_path) -> None:
    run_sft(recipe(), file, RunFolder.create(tmp_path, resume=False))
    steps = read_run(tmp_path).steps
    assert [step.phase for step in steps] == ["sft"] * 4
    assert all(step.loss is not None for step in steps)


def test_the_published_recipe_says_which_checkpoint_it_lacks(file) -> None:
    published = load_sft_recipe("sft-qwen2.5-vl-7b", ["model.device=cpu"])
    with pytest.raises(LabError, match=r"Qwen2.5-VL-7B-Instruct is not a checkpoint"):
        run_sft(published, file, RunFolder.create(file.parent / "run", resume=False))


def test_qwen2_5_vl_learns_pixels_of_the_resized_image_with_a_template_that_knows_tools(
    file, tmp_path
) -> None:
    """Its own template would drop every call, and the loss would look healthy all the same."""
    start = f"policy.checkpoint={qwen25(tmp_path / 'start')}"
    with pytest.raises(LabError, match=r"knows no tools. Set model.chat_template to lab"):
        run_sft(recipe(start), file, RunFolder.create(tmp_path / "own", resume=False))
    chosen = recipe(start, "model.chat_template=lab", "lora.r=4", "train.steps=2")
    run_sft(chosen, file, RunFolder.create(tmp_path / "run", resume=False))
    served, prompt_format = (
        load_policy(tmp_path / "run/model"),
        read_prompt_format(tmp_path / "run/model"),
    )
    assert served.family == "qwen2_5_vl"
    assert "tool_call" in served.tokenizer.chat_template
    assert prompt_format.space == "pixels"
    assert prompt_format.view((96, 96)).screen == (84, 84)
    questions = questions_of(list(read_samples(file))[:2], file.parent)
    points = asyncio.run(predict_with_policy(served, questions, prompt_format))
    assert len(points) == 2
