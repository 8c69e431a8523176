"""Recipes of SFT: as strict as the others, and apart from them."""

import dataclasses
import subprocess
import sys

import pytest

from cua_lab.errors import LabError
from cua_lab.recipes import load_recipe, recipe_names
from cua_lab.recipes.loader import FOLDER, dump_recipe
from cua_lab.recipes.sft_recipe import (
    load_sft_recipe,
    parse_sft_recipe,
    sft_recipe_names,
)


def test_the_article_s_recipe_ships_and_the_main_job_does_not_list_it():
    assert {"sft-qwen2.5-vl-7b", "sft-targets"} <= set(sft_recipe_names())
    assert not set(sft_recipe_names()) & set(recipe_names())
    recipe = load_sft_recipe("sft-qwen2.5-vl-7b")
    assert (recipe.lora.r, recipe.train.epochs) == (128, 3.0)
    assert recipe.model.chat_template == "lab"  # its own drops every call
    with pytest.raises(LabError, match="no recipe 'sft-targets'"):
        load_recipe("sft-targets")


@pytest.mark.parametrize("name", sft_recipe_names())
def test_what_a_recipe_resolves_to_loads_to_the_same(name):
    recipe = load_sft_recipe(name, ["seed=7"])
    assert parse_sft_recipe(dump_recipe(recipe)) == recipe


@pytest.mark.parametrize("name", sft_recipe_names())
def test_a_recipe_says_why(name):
    """Annotated: at least every fifth line carries a reason."""
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    assert sum("#" in line for line in lines) >= len(lines) / 5


def test_an_override_may_open_a_section():
    assert load_sft_recipe("sft-targets").lora is None
    assert load_sft_recipe("sft-targets", ["lora.r=8"]).lora.r == 8
    assert load_sft_recipe("sft-qwen2.5-vl-7b", ["lora="]).lora is None
    assert load_sft_recipe("sft-targets", ["track.wandb.project=mine"]).track.wandb.project


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lora:\n  rank: 3", r"mine.yaml, line 2: unknown key 'lora.rank'"),
        ("train: {lr: 3}", r"line 1: train.lr is 3; expected a number from 0 to 0.1"),
        ("train: {batch: 4, micro_batch: 8}", "micro_batch is 8, more than the batch of 4"),
        ("data: {order: random}", "expected one of 'shuffled', 'curriculum'"),
        ("track: {wandb: {}}", r"track.wandb.project is missing"),
        ("track: {wandb: {project: p, api_key: x}}", "unknown key 'track.wandb.api_key'"),
        ("stages: []", "it is a recipe for `cua-lab run`"),
        ("[]", "mapping of sections"),
    ],
)
def test_a_mistake_is_named_with_key_place_and_what_is_allowed(text, says):
    with pytest.raises(LabError, match=says):
        parse_sft_recipe(text, file="mine.yaml")


def test_a_recipe_of_your_own_is_given_by_its_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("seed: 3\n")
    mine = load_sft_recipe(tmp_path / "mine.yaml")
    assert (mine.name, mine.seed) == ("mine", 3)
    with pytest.raises(LabError, match="no SFT recipe 'mine'; there are sft-qwen"):
        load_sft_recipe("mine")
    with pytest.raises(LabError, match="there is no file"):
        load_sft_recipe("other.yaml")
    with pytest.raises(dataclasses.FrozenInstanceError):
        mine.seed = 1


def test_loading_a_recipe_imports_nothing_heavy():
    code = "import sys; from cua_lab.recipes.sft_recipe import load_sft_recipe;"
    code += "load_sft_recipe('sft-targets');"
    code += "print([m for m in ('torch', 'transformers', 'hud', 'numpy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
