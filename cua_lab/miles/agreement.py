"""Our trainer's recipe and Miles', compared where they mean the same.

Invariant: every number that both have is listed, as equal or with the reason why it may differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from cua_lab.miles.recipe import MilesRecipe
from cua_lab.recipes.settings import AgentSettings, GrpoSettings, ToolSettings

OWN = {
    "lr": "a 4 B checkpoint is moved 200 times more gently than a network of a million parameters",
    "weight_decay": "the published run's; the small policy is trained too briefly for it to matter",
    "beta2": "the published run's",
    "group_size": "memory and sandboxes against a steady baseline",
    "groups": "memory and sandboxes against a steady gradient",
}
"""Numbers that each recipe has for itself."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One number in both recipes."""

    name: str
    ours: object
    miles: object
    reason: str
    """Why it may differ; empty for a number that must not."""

    @property
    def agrees(self) -> bool:
        return self.ours == self.miles or bool(self.reason)


def compare(
    recipe: MilesRecipe,
    grpo: GrpoSettings | None = None,
    agent: AgentSettings | None = None,
    tool: ToolSettings | None = None,
) -> list[Comparison]:
    """Against the settings of one of our stages; the defaults of all stages without them."""
    grpo, agent, tool = grpo or GrpoSettings(), agent or AgentSettings(), tool or ToolSettings()
    train = recipe.train
    ours = {
        "clip_low": grpo.clip_low,
        "clip_high": grpo.clip_high,
        "kl_coef": grpo.kl_coef,
        "scale": grpo.scale,
        "normalise": grpo.normalise,
        "temperature": agent.temperature,
        "space": tool.coordinate_space,
        "lr": grpo.lr,
        "weight_decay": grpo.weight_decay,
        "beta2": grpo.beta2,
        "group_size": grpo.group_size,
        "groups": grpo.groups,
    }
    miles = {
        "clip_low": train.clip_low,
        "clip_high": train.clip_high,
        "kl_coef": train.kl_coef,
        "scale": train.scale,
        "normalise": train.normalise,
        "temperature": recipe.agent.temperature,
        "space": recipe.tool.coordinate_space,
        "lr": train.lr,
        "weight_decay": train.weight_decay,
        "beta2": train.beta2,
        "group_size": train.samples,
        "groups": train.prompts,
    }
    return [Comparison(name, ours[name], miles[name], OWN.get(name, "")) for name in ours]
