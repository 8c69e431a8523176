"""From a stage of a recipe to the parts that play it.

Invariant: whatever a recipe gets wrong about its tasks is found here, before anything is trained.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cua_lab.computer.schema import tool_schema
from cua_lab.demonstrators import players_of
from cua_lab.demonstrators.demos import PromptContext, corpus_of
from cua_lab.demonstrators.recorder import Recorder
from cua_lab.env_package import EnvPackage, env_package
from cua_lab.errors import LabError
from cua_lab.hud_quirks import template_parameters
from cua_lab.play.agent import LabAgentConfig, system_prompt
from cua_lab.play.runtimes import make_runtime
from cua_lab.play.worker import Plan
from cua_lab.policy.policy import build_policy, load_policy
from cua_lab.policy.template import render_text
from cua_lab.recipes import Recipe, Stage
from cua_lab.seeds import derive_seed
from cua_lab.serving.sampling_request import sampling_request
from cua_lab.stitching.template_check import check_template
from cua_lab.tasks import with_args

if TYPE_CHECKING:
    from hud.eval import Task

    from cua_lab.demonstrators.demos import Demonstrator
    from cua_lab.policy.policy import Policy


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

    def task(self, seed: int, turn: int = 0) -> Task:
        """One start state, of the variant whose turn it is."""
        from hud.eval import Task

        variant = self.variants[turn % len(self.variants)]
        return Task(
            env=self.package.name,
            id=variant.template,
            args={**variant.args, "seed": seed},
            slug=variant.name,
        )

    def _turns(self, count: int) -> list[int]:
        """The variant of each of `count` plans: as many of each, and the plans of one slot, which
        are every `concurrency`-th, change it once at most, for a browser keeps its page."""
        slots = min(self.recipe.run.concurrency, count)
        # In this order the plans of slot 0 come first, then those of slot 1, ...: cut into as many
        # equal runs as there are variants, a slot meets the edge of a run once or not at all.
        by_slot = sorted(range(count), key=lambda index: index % slots)
        turns = [0] * count
        for place, index in enumerate(by_slot):
            turns[index] = place * len(self.variants) // count
        return turns

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
        turns = self._turns(count)
        return [
            Plan(
                task=self.task(derive_seed(self.seed, name, purpose, index), turns[index]),
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
    agent, tool = stage.agent, stage.tool.config()
    config = LabAgentConfig(
        model="policy",
        system_prompt=system_prompt(short=agent.short_prompt, tool=tool),
        tool=tool,
        first_screenshot=agent.first_screenshot,
        max_steps=agent.max_turns,
        stop_on=set(agent.stop_on),
        completion_kwargs=sampling_request(
            temperature=agent.temperature, max_tokens=agent.max_tokens, token_ids=True
        ),
    )
    return StageContext(
        recipe=recipe,
        stage=stage,
        variants=_variants(package, stage),
        config=config,
        runtime=make_runtime(
            stage.tasks.package,
            stage.tasks.runtime,
            concurrency=recipe.run.concurrency,
            image=stage.tasks.image,
        ),
        package=package,
    )


def _check_ablations(package: EnvPackage, stage: Stage) -> None:
    if "blind" not in stage.eval.ablations:
        return
    if not hasattr(players_of(package), "best_blind"):
        raise LabError(
            f"eval.ablations of stage {stage.name!r}: nobody searches for the best fixed actions in"
            f" {package.source}; leave out blind"
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


def scene_of(setup: StageContext) -> PromptContext:
    """What the agent says around every conversation, for the demonstrations."""
    args = setup.variants[0].args
    size = (args["width"], args["height"])
    return PromptContext(
        system=setup.config.system_prompt,
        tools=(tool_schema(setup.config.tool, size),),
        first_screenshot=setup.stage.agent.first_screenshot,
    )


def demonstrator_of(setup: StageContext) -> Demonstrator:
    """The scripted player of the stage's task; of several variants, each in turn."""
    stage = setup.stage
    players = players_of(setup.package)
    each: list[Demonstrator] = [
        players.demonstrator(
            variant.template,
            scene_of(setup),
            variant.args,
            {**stage.sft.player, **({"think": stage.sft.think} if stage.sft.think else {})},
            space=stage.tool.coordinate_space,
            max_keys=stage.tool.max_keys_per_call,
            turns=variant.args.get("turns", stage.agent.max_turns),
            seed=derive_seed(setup.seed, stage.name, "demonstrations"),
        )
        for variant in setup.variants
    ]
    if len(each) == 1:
        return each[0]
    recorders = [player for player in each if isinstance(player, Recorder)]
    if len(recorders) == len(each):
        return Recorder.dealt(recorders)
    return lambda index: each[index % len(each)](index // len(each))


def new_policy(setup: StageContext, demonstrator: Demonstrator) -> Policy:
    """The policy before the warm-up: a checkpoint, or a small one with random weights."""
    settings = setup.stage.policy
    if settings.checkpoint is not None:
        policy = load_policy(settings.checkpoint)
        if setup.stage.agent.after_rewrite != "split":
            demo = demonstrator(0)
            check_template(
                lambda messages, opened: render_text(
                    policy.tokenizer, messages, demo.tools, add_generation_prompt=opened
                ),
                demo.messages,
            )
        return policy
    return build_policy(
        settings.shape(),
        corpus_of((demonstrator,)),
        seed=derive_seed(setup.seed, setup.stage.name, "weights"),
        name=setup.stage.name,
    )
