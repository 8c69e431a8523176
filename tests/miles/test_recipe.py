"""The published recipe: its numbers, what they cost, and that our trainer means the same."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from cua_lab.errors import LabError
from cua_lab.miles.agreement import compare
from cua_lab.miles.cost import costs_of, patch_values
from cua_lab.miles.recipe import (
    KEY,
    PUBLISHED,
    dump_miles_recipe,
    from_args,
    load_miles_recipe,
)
from cua_lab.policy.vision import QWEN2_5_VL, QWEN3_VL, SMALL
from cua_lab.recipes import load_recipe, recipe_names


def test_the_published_numbers() -> None:
    recipe = load_miles_recipe()
    train = recipe.train
    assert (recipe.agent.max_turns, recipe.tool.screenshot_width) == (24, 512)
    assert recipe.agent.max_tokens == 512
    assert (train.prompts, train.samples, train.episodes) == (4, 8, 32)
    assert (train.clip_low, train.clip_high, train.kl_coef, train.lr) == (0.2, 0.28, 0.0, 1e-6)
    assert recipe.model.tool_call_parser == "qwen25"
    assert (recipe.cluster.nodes, recipe.cluster.gpus) == (1, 8)


def test_every_number_says_what_it_trades() -> None:
    """A value without a word beside it, or above it, would be folklore."""
    silent = [
        line.strip()
        for line in PUBLISHED.read_text().splitlines()
        if ":" in line and "#" not in line and not line.rstrip().endswith(":")
    ]
    assert silent == ["width: 1280", "height: 1200", "weight_decay: 0.1", "beta1: 0.9",
                      "attention: fa3", "nodes: 1", "gpus: 8"]  # fmt: skip


def test_the_file_resolves_to_itself_and_miles_reads_it_as_one_attribute(tmp_path: Path) -> None:
    recipe = load_miles_recipe(overrides=["train.lr=2e-6", "cluster.output=/runs/a"])
    assert recipe.train.lr == 2e-6
    path = tmp_path / "resolved.yaml"
    path.write_text(dump_miles_recipe(recipe))
    assert load_miles_recipe(path) == recipe
    read = yaml.safe_load(path.read_text())  # as Miles does, one attribute a key
    assert list(read) == [KEY]
    assert from_args(SimpleNamespace(**read)) == recipe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cua_lab: {train: {lrr: 1}}", "unknown key 'train.lrr'; did you mean 'lr'"),
        ("cua_lab:\n  train:\n    samples: 1", "line 3: train.samples is 1"),
        ("train: {lr: 1}", "expected one key, 'cua_lab'"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(LabError, match=message.replace("?", r"\?")):
        load_miles_recipe(path)


def test_args_without_the_recipe_say_how_to_give_it() -> None:
    with pytest.raises(LabError, match="--custom-config-path"):
        from_args(SimpleNamespace())


def test_costs_by_hand() -> None:
    """1280x1200 at a width of 512 is 512x480: 16 x 15 tokens of 32 px, four patches each."""
    costs = costs_of(load_miles_recipe(), count_tokens=lambda text: 960)
    assert (costs.frame_size, costs.frame_tokens) == ((512, 480), 240)
    assert costs.frame_bytes == 240 * 4 * 1536 * 4
    assert costs.prompt_tokens == 1000
    assert costs.frames == 24
    assert costs.turn_tokens == 120 + 40 + 240
    assert costs.typical_tokens == 1000 + 24 * 240 + 23 * 40 + 24 * 120
    assert costs.longest_tokens == 1000 + 24 * 240 + 23 * 40 + 24 * 512
    assert costs.batch_bytes == 32 * 24 * costs.frame_bytes
    assert 15 < costs.transfer_minutes < 30


@pytest.mark.parametrize(
    ("width", "qwen3", "qwen2_5"), [(512, 240, 306), (640, 380, 483), (1280, 1520, 1978)]
)
def test_a_frame_costs_what_the_family_cuts_it_into(width: int, qwen3: int, qwen2_5: int) -> None:
    recipe = load_miles_recipe(overrides=[f"tool.screenshot_width={width}"])
    for geometry, tokens in ((QWEN3_VL, qwen3), (QWEN2_5_VL, qwen2_5)):
        assert costs_of(recipe, geometry=geometry).frame_tokens == tokens


def test_pixel_bytes_are_those_of_a_real_image() -> None:
    from PIL import Image

    from cua_lab.policy.vision import Vision, build_processor

    pixels, grid = Vision(build_processor(SMALL)).patchify(Image.new("RGB", (512, 480)))
    assert pixels.nbytes == costs_of(load_miles_recipe()).frame_bytes
    assert pixels.shape == (int(grid.prod()), patch_values(SMALL))


@pytest.mark.parametrize("name", recipe_names())
def test_our_recipes_mean_the_same_as_the_published_one(name: str) -> None:
    """Clip, KL, group advantages, averaging, temperature, coordinates; the rest gives a reason."""
    for stage in load_recipe(name).stages:
        for one in compare(load_miles_recipe(), stage.grpo, stage.agent, stage.tool):
            assert one.agrees, f"{stage.name}: {one.name} is {one.ours} here, {one.miles} there"


def test_a_difference_without_a_reason_shows() -> None:
    recipe = load_miles_recipe()
    other = replace(recipe, train=replace(recipe.train, clip_high=0.2))
    assert [one.name for one in compare(other) if not one.agrees] == ["clip_high"]
    other = replace(recipe, train=replace(recipe.train, kl_coef=0.1))
    assert [one.name for one in compare(other) if not one.agrees] == ["kl_coef"]
