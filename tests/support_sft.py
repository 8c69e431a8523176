"""A handful of drawn samples, a tiny policy, and a recipe for them."""

from pathlib import Path

from cua_lab.dataset.sample import write_samples
from cua_lab.dataset.synthetic import targets_samples
from cua_lab.recipes.sft import SftRecipe, parse_sft_recipe
from cua_lab.run.sft_job import prepare

SIZE = (96, 96)
TINY = """
policy: {hidden: 32, layers: 2, vision_hidden: 32, grid_side: 6}
model: {device: cpu}
ask: {system: short, actions: [click]}
train: {steps: 4, batch: 4, lr: 5e-3, checkpoint_every: 2, measure_every: 2}
"""


def recipe(*overrides: str) -> SftRecipe:
    return parse_sft_recipe(TINY, overrides=overrides)


def draw(folder: Path, count: int = 12, seed: int = 0) -> Path:
    """samples.jsonl with its screenshots."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "samples.jsonl"
    write_samples(path, targets_samples(folder, count, seed=seed, levels=(1,), sizes=(SIZE,)))
    return path


def trainer(file: Path, *overrides: str):
    """(Finetune, Asking, Adapter | None) of the tiny recipe."""
    return prepare(recipe(*overrides), file)
