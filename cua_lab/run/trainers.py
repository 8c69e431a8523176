"""Who learns in a stage: one process beside the engine, or several of which the first one plays.

    rank 0   play ─▶ samples ─▶ step ─▶ push          rank 1, 2, ...   wait ─▶ load ─▶ follow

`accelerate launch --num_processes N -m cua_lab run ...` starts them. Invariant: the network that is
served is a plain one; it is the one that learns itself only where that is plain, too, and nobody
samples while it learns.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from cua_lab.errors import LabError
from cua_lab.policy.policy import load_policy
from cua_lab.seeds import derive_seed
from cua_lab.training.learner import copied
from cua_lab.training.precision import precision_of
from cua_lab.training.ranks import Ranks
from cua_lab.training.trainer import GRPOTrainer

if TYPE_CHECKING:
    from cua_lab.policy.policy import Policy
    from cua_lab.recipes import Recipe, Stage


@dataclass(frozen=True, slots=True)
class Begun:
    """What the other ranks are told when a stage's GRPO begins."""

    stage: str
    policy: Path
    """The folder of the policy that it begins with."""


def learns_apart(recipe: Recipe, stage: Stage) -> bool:
    """Whether the network that learns is another one than the one that is served."""
    embedded = recipe.engine.kind == "embedded"
    return not stage.trainer.plain or (stage.grpo.ahead > 0 and embedded)


def stored_as(stage: Stage) -> str:
    """How the policy's weights are loaded: in half where none of them learns."""
    place = precision_of(stage.trainer.device, stage.trainer.precision, section="trainer")
    frozen = stage.trainer.lora is not None and stage.sft.steps == 0
    return place.stored(frozen=frozen)


def to_its_device(recipe: Recipe, stage: Stage, policy: Policy) -> None:
    """Move a policy to where it learns, before an engine looks at it.

    One that only waits on this machine for its next push to a server outside stays in main memory.
    """
    if recipe.engine.kind == "embedded" or not learns_apart(recipe, stage):
        place = precision_of(stage.trainer.device, stage.trainer.precision, section="trainer")
        policy.model.to(place.device)


def open_trainer(
    recipe: Recipe, stage: Stage, policy: Policy, ranks: Ranks, folder: Path
) -> GRPOTrainer:
    """The trainer of a stage on rank 0; the other ranks load the policy from `folder`."""
    ranks.deal([Begun(stage.name, folder)] * ranks.count)
    own = copied(policy) if learns_apart(recipe, stage) else policy
    return _trainer(recipe, stage, own, ranks)


def follow_recipe(recipe: Recipe, ranks: Ranks) -> None:
    """On every rank but 0: take part in each stage's updates until rank 0 ends."""
    torch.set_num_threads(recipe.run.threads)
    while True:
        begun: Begun | None = ranks.deal(None)
        if begun is None:
            return
        stage = recipe.stage(begun.stage)
        policy = load_policy(begun.policy, dtype=stored_as(stage))
        _trainer(recipe, stage, policy, ranks).follow()


def dismiss(ranks: Ranks) -> None:
    """Rank 0: there is no stage left."""
    nothing: list[Begun | None] = [None] * ranks.count
    ranks.deal(nothing)


def check_launch(recipe: Recipe, ranks: Ranks) -> None:
    """Refuse, before anything is played, what several processes cannot do."""
    shared = [stage.name for stage in recipe.stages if stage.trainer.shard]
    if ranks.alone and shared:
        raise LabError(
            f"trainer.shard of stage {shared[0]!r} splits weights over processes, and this is one:"
            " start with `accelerate launch --num_processes N -m cua_lab run ...`, or set"
            " trainer.shard=false"
        )
    if not ranks.alone and recipe.engine.kind == "embedded" and shared:
        raise LabError(
            f"trainer.shard of stage {shared[0]!r}: an embedded engine would hold all weights in"
            " the first process; set engine.kind to vllm or sglang, or trainer.shard=false"
        )


def _trainer(recipe: Recipe, stage: Stage, policy: Policy, ranks: Ranks) -> GRPOTrainer:
    return GRPOTrainer(
        policy,
        stage.grpo,
        temperature=stage.agent.temperature,
        place=stage.trainer,
        ranks=ranks,
        seed=derive_seed(recipe.run.seed, stage.name, "adapters"),
        lanes=recipe.run.lanes,
    )
