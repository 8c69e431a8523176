"""Every number of a run under Miles; `recipe.yaml` holds the published ones with their trade-offs.

    recipe.yaml: one key, `cua_lab` ──Miles' --custom-config-path──▶ args.cua_lab ──▶ generate
                                    └──launcher──▶ Miles' own flags

One file feeds both, so that the plug-in and the command cannot disagree. Invariant: it holds paths
and numbers, and never a secret.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

from cua_lab.errors import LabError
from cua_lab.files import read_text
from cua_lab.ranges import Count, NonNegative, Range, Rate, Share
from cua_lab.recipes.loader import build_settings, to_tree
from cua_lab.recipes.settings import AgentSettings, ToolSettings
from cua_lab.recipes.source import Override, Places, read_yaml

KEY = "cua_lab"
"""The one attribute that Miles sets on its `args` from the file."""
PUBLISHED = Path(__file__).with_name("recipe.yaml")
Placement = Literal["local", "subprocess", "docker", "daytona"]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The checkpoint that is trained."""

    path: str = ""
    """A Hugging Face folder."""
    tool_call_parser: str = "qwen25"
    """sglang's; without the right one tool calls stay text and every episode ends at turn one."""
    attention: str = "flash_attention_3"
    """The trainer's kernels."""


@dataclass(frozen=True, slots=True)
class TaskData:
    """What is played."""

    package: str = "cua_lab.envs.lab"
    """HUD env package: a dotted name, a folder, docker://IMAGE or tcp://HOST:PORT."""
    data: str = ""
    """JSONL of task rows, one a group."""


@dataclass(frozen=True, slots=True)
class ScreenSettings:
    """The env's screen, px: what costs are computed from. `tool` says how the policy sees it."""

    width: Count = 1280
    height: Count = 1200


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """Where episodes are placed."""

    kind: Placement = "daytona"
    name: str = "cua-lab-env"
    """Of the Docker image or the Daytona snapshot."""
    key_file: str = "~/.config/daytona/api_key"
    """Holds Daytona's key and nothing else; only the path is ever passed on."""
    max_sandboxes: Count = 32
    """Episodes at once in one process."""
    stop_after_failures: Count = 32
    """Failed episodes in a row that end the run: a broken machine, not bad luck."""


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """The reinforcement step, in Miles' terms."""

    rollouts: Count = 40
    """Steps."""
    prompts: Count = 4
    """Groups a step."""
    samples: Annotated[int, Range(2)] = 8
    """Episodes a group."""
    lr: Rate = 1e-6
    weight_decay: Share = 0.1
    beta1: Share = 0.9
    beta2: Share = 0.98
    clip_low: Share = 0.2
    clip_high: NonNegative = 0.28
    kl_coef: NonNegative = 0.0
    scale: Literal["std", "none"] = "std"
    """Of the advantages; "none" is Dr.GRPO."""
    normalise: Literal["token", "sequence"] = "token"
    """Mean over all tokens of the batch, or over each episode's first."""

    @property
    def episodes(self) -> int:
        """In one step."""
        return self.prompts * self.samples


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """Tokens of one episode."""

    limit: Count = 16384
    """Prompt and everything after it."""
    response: Count = 12288
    """All that follows the first prompt."""
    typical_answer: Count = 120
    """What an answer takes on average: two sentences and a call."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """sglang."""

    gpus_per_engine: Count = 1
    memory_share: Share = 0.6
    attention: str = "fa3"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The machines."""

    nodes: Count = 1
    gpus: Count = 8
    """A node."""
    timeout_minutes: Count = 60
    """Of one collective of the trainer."""
    save_every: Count = 5
    """Steps between checkpoints."""
    output: str = ""
    """Checkpoints, dumps and the resolved recipe; on storage that outlives the node."""
    miles: str = ""
    """Miles' sources, the folder with train.py; empty: where `import miles` finds it."""
    wandb: str = ""
    """Project on Weights & Biases; empty: none. The key comes from each node's ~/.netrc alone."""
    wandb_mode: Literal["online", "offline"] = "online"
    """Offline writes to the output folder, for `wandb sync` afterwards."""

    @property
    def sources(self) -> str:
        """The folder itself; a guess where there is none, for preflight to name."""
        if self.miles:
            return self.miles
        spec = importlib.util.find_spec("miles")
        places = list(spec.submodule_search_locations or []) if spec else []
        return str(Path(places[0]).parent if places else Path("miles"))


@dataclass(frozen=True, slots=True)
class MilesRecipe:
    """A whole run."""

    model: ModelSettings = field(default_factory=ModelSettings)
    tasks: TaskData = field(default_factory=TaskData)
    screen: ScreenSettings = field(default_factory=ScreenSettings)
    tool: ToolSettings = field(default_factory=ToolSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    context: ContextSettings = field(default_factory=ContextSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)


def load_miles_recipe(path: str | Path = PUBLISHED, overrides: Sequence[str] = ()) -> MilesRecipe:
    """A recipe from its file, with `section.key=value` overrides on top."""
    source, places = Path(path), Places()
    if not source.is_file():
        raise LabError(f"there is no file {source}; the published recipe is {PUBLISHED}")
    tree = read_yaml(read_text(source), source.name, places)
    if not isinstance(tree, dict) or set(tree) != {KEY}:
        raise LabError(
            f"{source.name}: expected one key, {KEY!r}, with all settings below it (Miles sets each"
            f" top-level key on its args); got {list(tree) if isinstance(tree, dict) else tree!r}"
        )
    settings = tree[KEY] or {}
    inner: Places = {key.removeprefix(f"{KEY}."): line for key, line in places.items()}
    for override in overrides:
        Override.parse(override, example="train.lr=2e-6").apply(settings, inner)
    return build_settings(MilesRecipe, settings, file=source.name, places=inner)


def from_args(args: Any) -> MilesRecipe:
    """The recipe that Miles read into its `args`."""
    settings = getattr(args, KEY, None)
    if not isinstance(settings, Mapping):
        raise LabError(
            f"Miles' args have no {KEY!r}: start with `cua-lab miles`, or give"
            f" --custom-config-path a file like {PUBLISHED}"
        )
    return build_settings(MilesRecipe, settings, file="--custom-config-path")


def dump_miles_recipe(recipe: MilesRecipe) -> str:
    """As YAML, every value in its place, for Miles and for the record."""
    return yaml.safe_dump({KEY: to_tree(recipe)}, sort_keys=False, allow_unicode=True)
