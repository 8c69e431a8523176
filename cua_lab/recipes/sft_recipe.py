"""Recipes of supervised fine-tuning: every number of `cua-lab sft`, its default and allowed range.

Data model: `SftRecipe` = which policy, how it is asked (`ask`), what it is shown in which order
(`data`), which weights learn (`lora`: none means all of them), how (`train`), and who watches
(`track`). Invariant: as strict as the recipes of the main job, which are other files: a YAML whose
name starts with `sft-` is one of these, and `cua-lab run` does not list it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from cua_lab.errors import LabError
from cua_lab.files import read_text
from cua_lab.ranges import Count, Natural, Range, Rate, Share
from cua_lab.recipes.loader import FOLDER, build_settings, recipe_file
from cua_lab.recipes.settings import PolicySettings
from cua_lab.recipes.source import Override, Places, read_yaml
from cua_lab.recipes.trainer_settings import LoraSettings

PREFIX = "sft-"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """How the network is held in memory."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto`: the first GPU, else the CPU."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the arithmetic; `auto` is bfloat16 on a GPU that has it. What learns stays float32: a
    bfloat16 weight has 8 bits and swallows updates of 1e-5."""
    gradient_checkpointing: bool = False
    """Forget activations and compute them again: a third slower, a fraction of the memory."""
    threads: Count = 1
    chat_template: Literal["own", "lab"] = "own"
    """`lab` puts this package's in place of the checkpoint's: Qwen2.5-VL's knows no tools."""


@dataclass(frozen=True, slots=True)
class AskSettings:
    """What the policy is told around every instruction; the exported folder remembers it."""

    system: Literal["long", "short", "none"] = "long"
    """The agent's system prompt: GRPO and `cua-lab eval` go on with the same."""
    actions: tuple[str, ...] | None = None
    """Actions of the tool that are offered; `None` is all."""


@dataclass(frozen=True, slots=True)
class DataSettings:
    """What is learnt from, and in which order."""

    space: Literal["0-1", "0-1000", "pixels"] | None = None
    """Coordinate space of the file; a row that declares its own wins. Never guessed."""
    point: Literal["given", "box_centre"] = "given"
    """Where a click is taught: as the row says, or at the middle of its box. Scattered clicks
    teach the size of the targets, centres are learnt sooner."""
    order: Literal["shuffled", "curriculum"] = "shuffled"
    """`curriculum`: easy samples first (see `cua_lab.dataset.difficulty`)."""
    medium_from: Share = 0.3
    """Of a curriculum: the share of training after which medium samples join; `hard_from` alike."""
    hard_from: Share = 0.6
    review: Share = 0.2
    """Share of earlier levels once a harder one is open."""
    held_out: Natural = 0
    """Last rows of the file, which are never trained on: their loss is measured."""
    max_tokens: Count = 16384
    """Of one conversation, image tokens included; a longer one is a mistake in the data."""


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """The optimizer."""

    epochs: Annotated[float, Range(1e-6)] = 1.0
    steps: Count | None = None
    """Updates; instead of `epochs` where given."""
    batch: Count = 32
    """Conversations an update."""
    micro_batch: Count | None = None
    """Of them in one forward pass; `None` is all. The gradient is the same but for rounding."""
    lr: Rate = 1e-5
    warmup: Share = 0.03
    """Share of the updates in which the rate rises; then it falls along a cosine."""
    final_lr: Share = 0.0
    """Where the cosine ends, as a share of `lr`."""
    weight_decay: Share = 0.0
    """Of matrices; biases and norms are left alone."""
    beta2: Annotated[float, Range(0, 0.9999)] = 0.95
    grad_clip: Annotated[float, Range(1e-3)] = 1.0
    measure_every: Count = 50
    """Updates between two looks at the held-out rows."""
    checkpoint_every: Natural = 100
    """Updates between checkpoints; 0 keeps only the last."""
    keep_checkpoints: Count = 2

    def __post_init__(self) -> None:
        micro = self.micro_batch or self.batch
        if micro > self.batch:
            raise ValueError(f"micro_batch is {micro}, more than the batch of {self.batch}")


@dataclass(frozen=True, slots=True)
class WandbSettings:
    """Weights & Biases; its package is not installed with the lab."""

    project: str
    entity: str | None = None
    key_file: str = "~/.config/wandb/api_key"
    """The API key is read from this file, never from a recipe."""
    mode: Literal["online", "offline"] = "online"


@dataclass(frozen=True, slots=True)
class TrackSettings:
    """Who is told of every step; `metrics.jsonl` always is."""

    tensorboard: bool = False
    """Event files under the run's `tensorboard/`, through torch's own writer."""
    wandb: WandbSettings | None = None


@dataclass(frozen=True, slots=True)
class SftRecipe:
    """A whole fine-tuning."""

    name: str
    seed: int = 0
    policy: PolicySettings = field(default_factory=PolicySettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    ask: AskSettings = field(default_factory=AskSettings)
    data: DataSettings = field(default_factory=DataSettings)
    lora: LoraSettings | None = None
    train: TrainSettings = field(default_factory=TrainSettings)
    track: TrackSettings = field(default_factory=TrackSettings)


def sft_recipe_names() -> list[str]:
    """The SFT recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob(f"{PREFIX}*.yaml"))


def load_sft_recipe(name_or_path: str | Path, overrides: Sequence[str] = ()) -> SftRecipe:
    """A recipe by its name or its file, with `section.key=value` overrides on top."""
    path = recipe_file(name_or_path, sft_recipe_names(), kind="SFT recipe")
    text = read_text(path)
    return parse_sft_recipe(text, file=path.name, name=path.stem, overrides=overrides)


def parse_sft_recipe(
    text: str, *, file: str = "recipe", name: str = "sft", overrides: Sequence[str] = ()
) -> SftRecipe:
    """A recipe from YAML text; `name` is used where the text gives none."""
    places: Places = {}
    tree = read_yaml(text, file, places)
    if not isinstance(tree, dict):
        raise LabError(f"{file}: a recipe is a mapping of sections, not a {type(tree).__name__}")
    if "stages" in tree:
        raise LabError(f"{file} has stages: it is a recipe for `cua-lab run`")
    tree.setdefault("name", name)
    for override in overrides:
        Override.parse(override, example="lora.r=8").apply(tree, places)
    return build_settings(SftRecipe, tree, file=file, places=places)
