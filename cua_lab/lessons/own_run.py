"""A stage of a recipe, a part in each cell: warm up, improve, cover the eyes.

    recipe.yaml ──OwnRun.of──▶ warm_up() ──▶ improve(steps) ... ──▶ covered("shuffled")

What `cua-lab run` plays in one go. Invariant: each part is the run's own, on the same engine, env
and plans; nothing is measured in another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cua_lab.recipes import load_recipe
from cua_lab.records import TaskSummary, read_lines
from cua_lab.run.folder import RunFolder
from cua_lab.run.measure import Measured
from cua_lab.run.progress import Progress
from cua_lab.run.stage import StageRun
from cua_lab.run.stage_context import build_stage
from cua_lab.stats import Estimate


@dataclass
class OwnRun:
    """The first stage of a recipe, as far as it has been played."""

    stage: StageRun
    before: Measured | None = None
    after: Measured | None = None
    ablations: dict[str, Estimate] = field(default_factory=dict)

    @classmethod
    def of(cls, recipe: Path, folder: Path, overrides: Sequence[str] = ()) -> OwnRun:
        """`folder` is where records and checkpoints go; raises `LabError` where the recipe is
        wrong."""
        loaded = load_recipe(recipe, list(overrides))
        context = build_stage(loaded, loaded.stages[0])
        held = RunFolder.create(folder, resume=False, overwrite=True)
        return cls(StageRun.open(context, held, Progress()))

    async def warm_up(self) -> Measured:
        """Learn from demonstrations; what fresh episodes then earn."""
        await self.stage.warm_up()
        self.before = await self.stage._measure("eval_before")
        return self.before

    async def improve(self, steps: int) -> list[float]:
        """So many GRPO steps more; the mean reward of each."""
        context = self.stage.context
        last = self.stage.state.step + steps
        grpo = replace(context.stage.grpo, steps=last)
        self.stage.context = replace(context, stage=replace(context.stage, grpo=grpo))
        await self.stage._grpo()
        records = read_lines(self.stage.folder.path / "metrics.jsonl")
        return [line["reward_mean"] for line in records if line["phase"] == "grpo"][-steps:]

    async def measure(self) -> Measured:
        """What fresh episodes earn now; the same ones as before."""
        self.after = await self.stage._measure("eval_after")
        return self.after

    async def covered(self, name: str) -> Estimate:
        """The same with `shuffled` or `blank` screens, or played at `random`."""
        reward = (await self.stage._ablation(name)).reward
        assert reward is not None  # `_ablation` raises where nothing was graded
        self.ablations[name] = reward
        return reward

    def summary(self) -> TaskSummary:
        """As `outcome_figure` draws it."""
        return TaskSummary(
            reward_before=self.before.reward if self.before else None,
            reward_after=self.after.reward if self.after else None,
            ablations=dict(self.ablations),
        )
