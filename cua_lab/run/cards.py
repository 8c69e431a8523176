"""The hardware table: what the recipes for GPUs take of which card, and how long a step is.

    recipes ──▶ training.hardware ──▶ markdown, as `docs/hardware.md` shows it

Invariant: the arithmetic alone is counted; browsers, grading and waiting come on top.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cua_lab.recipes import LoraSettings, TrainerSettings, load_recipe
from cua_lab.training.hardware import CARDS, Assumed, Card, Memory, memory_of, real_config
from cua_lab.training.hardware import step_seconds as seconds_of

GIB = 2**30
PROMPT = 600
"""Tokens of schema, system prompt and task in front of an episode."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One line of the table: a recipe, changed a little, on a card."""

    recipe: str
    size: str
    card: Card
    purpose: str
    lora: LoraSettings | None


Row = tuple[Setup, Memory, float, dict[str, float]]

SETUPS = (
    Setup("qwen3-vl-2b-lora", "2b", CARDS[0], "one GPU of one's own", LoraSettings(r=32, alpha=64)),
    Setup("qwen3-vl-4b", "4b", CARDS[1], "adapters", LoraSettings(r=64, alpha=128)),
    Setup("qwen3-vl-4b", "4b", CARDS[2], "every weight", None),
)


def worked_out() -> list[Row]:
    """The setups' memory, the engine's share of the card in GiB, and seconds of a step by part."""
    return [_row(setup) for setup in SETUPS]


def table(rows: list[Row] | None = None) -> str:
    """Memory by part in GiB, and hours of a recipe's longest stage; `rows` of `worked_out`."""
    assumed = Assumed()
    rows = worked_out() if rows is None else rows
    parts = list(dict.fromkeys(part for _, memory, _, _ in rows for part in memory.parts))
    head = ["", *(f"{s.recipe}, {s.card.name}: {s.purpose}" for s, _, _, _ in rows)]
    lines = [_line(head), _line(["---", *("---:" for _ in rows)])]
    lines.append(_line(["weights, in all / learning", *(_counts(m) for _, m, _, _ in rows)]))
    for part in parts:
        lines.append(_line([part, *(_gib(m.parts.get(part, 0)) for _, m, _, _ in rows)]))
    lines.append(_line(["trainer", *(_gib(m.total) for _, m, _, _ in rows)]))
    lines.append(_line(["engine's share", *(f"{e:.1f}" for _, _, e, _ in rows)]))
    lines.append(_line(["card", *(f"{s.card.gib:g}" for s, _, _, _ in rows)]))
    for part in ("prefill", "decode", "train"):
        lines.append(_line([f"{part}, s a step", *(f"{t[part]:.0f}" for _, _, _, t in rows)]))
    hours = (_steps(s) * sum(t.values()) / 3600 for s, _, _, t in rows)
    lines.append(_line(["hours of GPU, games", *(f"{h:.1f}" for h in hours)]))
    return "\n".join(
        [
            *lines,
            "",
            f"GiB. Assumed: training reaches {assumed.of_peak:.0%} of a card's bfloat16 peak,"
            f" decoding {assumed.of_bandwidth:.0%} of its bandwidth.",
        ]
    )


def _row(setup: Setup) -> Row:
    recipe = load_recipe(setup.recipe)
    game = recipe.stage("game")
    settings: TrainerSettings = replace(game.trainer, lora=setup.lora)
    config = real_config(setup.size)
    tokens = game.grpo.tokens_per_microbatch
    memory = memory_of(config, settings, tokens=tokens)
    episodes = game.grpo.groups * game.grpo.group_size
    shown = _image_tokens(game.tasks.args)
    answers = (
        episodes * game.agent.max_turns * game.agent.max_tokens // 2
    )  # half of what is allowed
    trained = episodes * (PROMPT + game.agent.max_turns * shown) + answers
    seconds = seconds_of(
        config,
        setup.card,
        settings,
        trained=trained,
        sampled=answers,
        at_once=min(recipe.run.concurrency, episodes),
    )
    share = 0.4 if setup.card is CARDS[1] else _share(recipe.engine.flags)
    return setup, memory, share * setup.card.gib, seconds


def _share(flags: tuple[str, ...]) -> float:
    return float(flags[flags.index("--gpu-memory-utilization") + 1])


def _image_tokens(args: dict[str, Any]) -> int:
    """32 px a side: patches of 16, merged 2 by 2."""
    return -(-int(args["width"]) // 32) * -(-int(args["height"]) // 32)


def _steps(setup: Setup) -> int:
    return load_recipe(setup.recipe).stage("game").grpo.steps


def _counts(memory: Memory) -> str:
    return f"{memory.parameters / 1e9:.2f} G / {memory.learning / 1e9:.2f} G"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}" if size else "-"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
