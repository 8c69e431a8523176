"""From a stage of a recipe to the parts that play it.

Invariant: whatever a recipe gets wrong about its tasks is found here, before anything is trained.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cua_lab.computer.schema import tool_schema
from cua_lab.demonstrators import players_of
from cua_lab.demonstrators.demos import PromptContext, corpus_of
from cua_lab.demonstrators.recorder import Recorder
from cua_lab.demonstrators.trajectories import Trajectories
from cua_lab.env_package import EnvPackage, env_package
from cua_lab.errors import LabError
from cua_lab.hud_quirks import template_parameters
from cua_lab.play.agent import LabAgentConfig, agent_config
from cua_lab.play.runtimes import make_runtime
from cua_lab.play.worker import Plan
from cua_lab.policy.policy import build_policy, load_policy
from cua_lab.policy.template import render_text
from cua_lab.recipes import Recipe, Stage
from cua_lab.safety.policy_file import load_policy as load_safety_policy
from cua_lab.seeds import derive_seed
from cua_lab.stitching.template_check import check_template
from cua_lab.tasks import with_args

if TYPE_CHECKING:
    from hud.eval import Task

    from cua_lab.demonstrators.demos import Demonstrator
    from cua_lab.policy.policy import Policy
    from cua_lab.safety.gate import Gate


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the tasks that a stage's policy learns."""

    name: str
    """What it varies in, such as the page; the template where nothing varies."""
    args: Mapping[str, Any]
    """All arguments but the seed."""
    template: str = ""
    """What it is played on."""


@dataclass(frozen=True, slots=True)
class StageContext:
    """A stage with everything that does not change while it runs."""

    recipe: Recipe
    stage: Stage
    variants: tuple[Variant, ...]
    """Dealt in turn; one, where the recipe varies nothing."""
    config: LabAgentConfig
    runtime: Any
    """A HUD runtime provider."""
    package: EnvPackage

    @property
    def seed(self) -> int:
        return self.recipe.run.seed

    def gated(self, gate: Gate | None) -> StageContext:
        """The same stage with this gate in front of its policy."""
        return replace(self, config=self.config.model_copy(update={"gate": gate}))

    def task(self, seed: int, variant_index: int = 0) -> Task:
        """One start state of a variant; indices past the last begin again at the first."""
        from hud.eval import Task

        variant = self.variants[variant_index % len(self.variants)]
        return Task(
            env=self.package.name,
            id=variant.template,
            args={**variant.args, **({"seed": seed} if self._takes_seed(variant) else {})},
            slug=variant.name,
        )

    def _takes_seed(self, variant: Variant) -> bool:
        """An env without a seed begins each episode as it likes; all are then of one start."""
        return "seed" in template_parameters(self.package.env, variant.template)

    def _variant_indices(self, count: int) -> list[int]:
        """The variant of each of `count` plans: as many of each, and the plans of one slot, which
        are every `concurrency`-th, change it once at most, for a browser keeps its page."""
        slots = min(self.recipe.run.concurrency, count)
        # In this order the plans of slot 0 come first, then those of slot 1, ...: cut into as many
        # equal runs as there are variants, a slot meets the edge of a run once or not at all.
        by_slot = sorted(range(count), key=lambda index: index % slots)
        indices = [0] * count
        for place, index in enumerate(by_slot):
            indices[index] = place * len(self.variants) // count
        return indices

    def training_plans(self, step: int) -> list[Plan]:
        """The episodes of one GRPO step: `groups` start states, `group_size` episodes each."""
        name, grpo = self.stage.name, self.stage.grpo
        members = [(group, m) for group in range(grpo.groups) for m in range(grpo.group_size)]
        if len(self.variants) > 1:  # neighbours play different pages, and a browser keeps its own
            members.sort(key=lambda member: member[1])
        return [
            Plan(
                task=self.task(
                    derive_seed(self.seed, name, "start", step, group), step * grpo.groups + group
                ),
                id=f"{name}-{step}-{group}-{member}",
                group=f"{name}-{step}-{group}",
                seed=derive_seed(self.seed, name, "episode", step, group, member),
            )
            for group, member in members
        ]

    def fresh_plans(self, purpose: str, count: int) -> list[Plan]:
        """Episodes that training never sees; the same ones for the same purpose."""
        name = self.stage.name
        indices = self._variant_indices(count)
        return [
            Plan(
                task=self.task(derive_seed(self.seed, name, purpose, index), indices[index]),
                id=f"{name}-{purpose}-{index}",
                group=f"{name}-{purpose}-{index}",
                seed=derive_seed(self.seed, name, purpose, "episode", index),
            )
            for index in range(count)
        ]


def build_stage(recipe: Recipe, stage: Stage) -> StageContext:
    """Check a stage against its env package and build what plays it."""
    package = env_package(stage.tasks.package)
    _check_ablations(package, stage)
    if package.served is not None:
        package.check_concurrency(recipe.run.concurrency, "run.concurrency")
    _check_safety(stage)
    return StageContext(
        recipe=recipe,
        stage=stage,
        variants=_variants(package, stage),
        config=agent_config(stage.agent, stage.tool, model="policy"),
        runtime=make_runtime(
            stage.tasks.package,
            stage.tasks.runtime,
            concurrency=recipe.run.concurrency,
            image=stage.tasks.image,
        ),
        package=package,
    )


def _check_ablations(package: EnvPackage, stage: Stage) -> None:
    if package.players is None and "random" in stage.eval.ablations:
        raise LabError(
            f"eval.ablations of stage {stage.name!r}: {package.source} brings no players.py, so"
            " nobody plays at random; set eval.ablations to [shuffled, blank]"
        )
    if "blind" not in stage.eval.ablations:
        return
    if not hasattr(players_of(package), "best_blind"):
        raise LabError(
            f"eval.ablations of stage {stage.name!r}: nobody searches for the best fixed actions in"
            f" {package.source}; leave out blind"
        )


def _check_safety(stage: Stage) -> None:
    """The policy file is read now, and the desktop can be asked what is on it."""
    if stage.safety.policy is None:
        return
    load_safety_policy(stage.safety.policy)
    if stage.tasks.runtime != "local":
        raise LabError(
            f"safety.policy asks each desktop what lies under the pointer, which tasks.runtime"
            f" {stage.tasks.runtime} does not tell: every click would be refused as unknown; use"
            " runtime: local, or leave safety.policy out"
        )


def _variants(package: EnvPackage, stage: Stage) -> tuple[Variant, ...]:
    """The stage's tasks, with arguments checked by name and type."""
    template = stage.tasks.template
    fixed = _template_args(package, stage, template, stage.tasks.args)
    for name, values in stage.tasks.vary.items():
        if name in ("turns", "width", "height"):
            raise LabError(f"tasks.vary: {name} is the same for every episode of a stage")
        return tuple(
            Variant(
                str(value),
                _template_args(package, stage, template, {**stage.tasks.args, name: value}),
                template,
            )
            for value in values
        )
    size: dict[str, Any] = {name: fixed[name] for name in ("width", "height") if name in fixed}
    return (
        Variant(template, fixed, template),
        *(
            Variant(name, _template_args(package, stage, name, size | dict(args)), name)
            for name, args in stage.tasks.also.items()
        ),
    )


def _template_args(
    package: EnvPackage, stage: Stage, name: str, args: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments on top of the template's own, and the number of turns: of several templates each
    has its own, within the agent's."""
    tasks = stage.tasks
    templates = package.templates
    if name not in templates:
        raise LabError(f"{tasks.package} has no template {name!r}; it has {', '.join(templates)}")
    template = templates[name]
    defaults = {
        argument: parameter.default
        for argument, parameter in template_parameters(package.env, name).items()
        if parameter.default is not inspect.Parameter.empty
    }
    if "turns" in defaults:
        own = defaults["turns"] if tasks.also else stage.agent.max_turns
        defaults["turns"] = min(own, stage.agent.max_turns)
    return {**defaults, **with_args(template(), args)}


def scene_of(context: StageContext) -> PromptContext:
    """What the agent says around every conversation, for the demonstrations."""
    args, tool = context.variants[0].args, context.stage.tool
    if tool.coordinate_space == "pixels" and not {"width", "height"} <= set(args):
        raise LabError(
            f"{context.package.source} does not say how large its screen is, so a tool in pixels"
            " cannot be described before an episode: set tool.coordinate_space to 0-1000"
        )
    size = (args.get("width", 1000), args.get("height", 1000))  # of the schema's limits in pixels
    return PromptContext(
        system=context.config.system_prompt,
        tools=(tool_schema(context.config.tool, size),),
        first_screenshot=context.stage.agent.first_screenshot,
    )


def demonstrator_of(context: StageContext) -> Demonstrator | None:
    """Whom the warm-up learns from: trajectories, or the scripted player of the stage's task, of
    several variants each in turn. `None` where there is no warm-up and the package brings nobody.
    """
    stage = context.stage
    if stage.sft.trajectories is not None:
        return Trajectories.read(stage.sft.trajectories, scene_of(context).tools)
    if stage.sft.steps == 0 and context.package.players is None:
        return None
    players = players_of(context.package)
    each: list[Demonstrator] = [
        players.demonstrator(
            variant.template,
            scene_of(context),
            variant.args,
            {**stage.sft.player, **({"think": stage.sft.think} if stage.sft.think else {})},
            space=stage.tool.coordinate_space,
            max_keys=stage.tool.max_keys_per_call,
            turns=variant.args.get("turns", stage.agent.max_turns),
            seed=derive_seed(context.seed, stage.name, "demonstrations"),
        )
        for variant in context.variants
    ]
    if len(each) == 1:
        return each[0]
    recorders = [player for player in each if isinstance(player, Recorder)]
    if len(recorders) == len(each):
        return Recorder.dealt(recorders)
    return lambda index: each[index % len(each)](index // len(each))


def new_policy(
    context: StageContext, demonstrator: Demonstrator | None, dtype: str = "float32"
) -> Policy:
    """The policy before the warm-up: a checkpoint, or a small one with random weights."""
    settings = context.stage.policy
    if settings.checkpoint is not None:
        policy = load_policy(settings.checkpoint, dtype=dtype)
        if demonstrator is not None and context.stage.agent.after_rewrite != "split":
            demo = demonstrator(0)
            check_template(
                lambda messages, opened: render_text(
                    policy.tokenizer, messages, demo.tools, add_generation_prompt=opened
                ),
                demo.messages,
            )
        return policy
    if demonstrator is None:
        raise LabError(
            f"stage {context.stage.name!r} has nothing to begin with: a new policy gets its words"
            " from demonstrations; set policy.checkpoint, or sft.trajectories to a JSONL"
        )
    return build_policy(
        settings,
        corpus_of((demonstrator,)),
        seed=derive_seed(context.seed, context.stage.name, "weights"),
        name=context.stage.name,
    )
