"""What the numbers of a recipe cost: tokens, pixels, time and disk, by arithmetic.

Invariant: nothing here is measured or looked up at run time; every figure follows from the recipe,
the geometry of the model's image processor and the constants named below.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass

from cua_lab.computer.schema import tool_schema, view_of
from cua_lab.miles.recipe import MilesRecipe
from cua_lab.play.agent import system_prompt
from cua_lab.policy.vision import QWEN3_VL, Geometry, tokens_for

SCAFFOLD_TOKENS = 40
"""Between two turns: end of turn, the tool's answer, roles, vision start and end."""
CHARACTERS_PER_TOKEN = 3.0
"""Of English and JSON, on the safe side, where no tokenizer is at hand."""
FLOAT_BYTES = 4
COLOURS, FRAMES = 3, 2
"""An image is two equal frames to the patch embedding."""
MINUTES_PER_GIB = 5.0
"""Of pixels from the rollout to the trainer: in the published run 2 GB took over 10 minutes."""
CHECKPOINT_BYTES_PER_PARAMETER = 12
"""Weights and two moments in float32."""
WEIGHT_BYTES = 2
"""A parameter of the published checkpoint, bfloat16."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one recipe."""

    frame_size: tuple[int, int]
    """Screenshot, px."""
    frame_tokens: int
    frame_bytes: int
    """Patches of one screenshot, float32."""
    prompt_tokens: int
    """System prompt, tool and task, without the first screenshot."""
    frames: int
    """An episode's, at most."""
    turn_tokens: int
    """One typical answer and what the screen answers."""
    typical_tokens: int
    """An episode of all turns with typical answers."""
    longest_tokens: int
    """With every answer at its limit."""
    episode_bytes: int
    batch_bytes: int
    """Pixels of one step, which the trainer's first rank unpacks."""
    transfer_minutes: float
    """For those, by the published run's rate."""

    def lines(self) -> list[tuple[str, str]]:
        """For a table."""
        width, height = self.frame_size
        return [
            (
                "a frame",
                f"{width}x{height} px, {self.frame_tokens} tokens, {mib(self.frame_bytes)}",
            ),
            ("the first prompt", f"{self.prompt_tokens} tokens and a frame"),
            ("a turn", f"{self.turn_tokens} tokens: a typical answer, scaffold and a frame"),
            (
                "an episode",
                f"{self.typical_tokens} tokens typically, {self.longest_tokens} at most;"
                f" {self.frames} frames, {mib(self.episode_bytes)} of pixels",
            ),
            ("a batch", f"{mib(self.batch_bytes)} of pixels, {self.transfer_minutes:.0f} minutes"),
        ]


def costs_of(
    recipe: MilesRecipe,
    *,
    geometry: Geometry = QWEN3_VL,
    count_tokens: Callable[[str], int] | None = None,
) -> Costs:
    """Costs; `count_tokens` is the model's tokenizer where there is one."""
    agent, screen = recipe.agent, (recipe.screen.width, recipe.screen.height)
    tool = recipe.tool
    size = view_of(tool, screen).size
    frame = tokens_for(*size, geometry)
    frame_bytes = frame * geometry.merge**2 * patch_values(geometry) * FLOAT_BYTES
    prompt = _prompt_tokens(recipe, count_tokens or _estimate)
    first = int(agent.first_screenshot)
    frames = first + agent.max_turns - 1  # what follows the last answer enters no prompt
    between = (agent.max_turns - 1) * SCAFFOLD_TOKENS
    fixed = prompt + frames * frame + between
    episode_bytes = frames * frame_bytes
    batch_bytes = episode_bytes * recipe.train.episodes
    return Costs(
        frame_size=size,
        frame_tokens=frame,
        frame_bytes=frame_bytes,
        prompt_tokens=prompt,
        frames=frames,
        turn_tokens=recipe.context.typical_answer + SCAFFOLD_TOKENS + frame,
        typical_tokens=fixed + agent.max_turns * recipe.context.typical_answer,
        longest_tokens=fixed + agent.max_turns * agent.max_tokens,
        episode_bytes=episode_bytes,
        batch_bytes=batch_bytes,
        transfer_minutes=batch_bytes / 2**30 * MINUTES_PER_GIB,
    )


def patch_values(geometry: Geometry) -> int:
    """Numbers in one patch."""
    return COLOURS * FRAMES * geometry.patch**2


def checkpoint_bytes(weights_bytes: int) -> int:
    """One checkpoint of the trainer, from the size of the published weights."""
    return weights_bytes // WEIGHT_BYTES * CHECKPOINT_BYTES_PER_PARAMETER


def checkpoints(recipe: MilesRecipe) -> int:
    """How many a run leaves."""
    return math.ceil(recipe.train.rollouts / recipe.cluster.save_every)


def mib(count: float) -> str:
    """Bytes for people."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def _prompt_tokens(recipe: MilesRecipe, count: Callable[[str], int]) -> int:
    system = system_prompt(short=recipe.agent.short_prompt, tool=recipe.tool)
    screen = (recipe.screen.width, recipe.screen.height)
    tool = json.dumps(tool_schema(recipe.tool, screen))
    return count(system + tool) + SCAFFOLD_TOKENS


def _estimate(text: str) -> int:
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)
