"""A package's scripted player and random play, a few episodes each, through HUD: does it work?

    EnvPackage ──try_out──▶ (episodes of the player, episodes of random play)

Invariant: both play the package's first template with its default arguments, through the same
agent, tool, screen and grader as a policy's episodes.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.coordinates import Space
from cua_lab.computer.schema import tool_schema
from cua_lab.demonstrators import players_of
from cua_lab.demonstrators.demos import DemoRequest, PromptContext
from cua_lab.demonstrators.own_players import AppPlayer, PageRecorder
from cua_lab.desktop.pool import shared_pool
from cua_lab.errors import LabError
from cua_lab.hud_quirks import template_parameters
from cua_lab.play.agent import LabAgentConfig
from cua_lab.play.episode import Episode, play
from cua_lab.play.scripted import ScriptedPolicy, ScriptedTransport, in_turn

if TYPE_CHECKING:
    from cua_lab.env_package import EnvPackage

SPACE: Space = "0-1000"


async def try_out(package: EnvPackage, *, episodes: int = 8) -> tuple[list[Episode], list[Episode]]:
    """Episodes of the scripted player and of random play, from starts 0, 1, ... of each."""
    template, args = _first_template(package)
    players = players_of(package)
    turns = args.get("turns", 1)
    tool = ToolConfig(coordinate_space=SPACE, **package.tool)
    size = (args["width"], args["height"])
    shown = players.demonstrator(
        DemoRequest(
            template,
            PromptContext(system=None, tools=(tool_schema(tool, size),)),
            args,
            options={},
            space=SPACE,
            max_keys=tool.max_keys_per_call,
            turns=turns,
            seed=0,
        )
    )
    config = LabAgentConfig(model="player", system_prompt=None, tool=tool, max_steps=turns)
    at_random = [
        await _play(package, template, config, args | {"seed": seed}, players.random_player(
            template, seed=seed, keys_per_turn=2.0, max_keys=tool.max_keys_per_call, space=SPACE
        ))
        for seed in range(episodes)
    ]  # fmt: skip
    if isinstance(shown, AppPlayer):
        by_player = [
            await _play(
                package,
                template,
                config,
                args | {"seed": shown.start_of(index)},
                in_turn(_calls(shown(index).messages)),
            )
            for index in range(episodes)
        ]
    elif isinstance(shown, PageRecorder):
        by_player = []
        for index in range(episodes):
            async with shared_pool(*size).lend() as desktop:
                by_player.append((await shown.player.play(desktop, index))[0])
    else:
        raise LabError(
            f"{package.source}: players.py should make its demonstrator with app_players or"
            " page_players of cua_lab.demonstrators.own_players to be tried out"
        )
    return by_player, at_random


def _first_template(package: EnvPackage) -> tuple[str, dict[str, Any]]:
    """Its id and the arguments that have a default, without the seed."""
    template = next(iter(package.templates))
    args = {
        name: parameter.default
        for name, parameter in template_parameters(package.env, template).items()
        if parameter.default is not inspect.Parameter.empty and name != "seed"
    }
    if missing := {"width", "height"} - set(args):
        raise LabError(
            f"{package.source}: template {template!r} needs the arguments {sorted(missing)} with"
            " a default: the size of the screen in pixels"
        )
    return template, args


def _calls(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        call["function"]["arguments"]
        for message in messages
        if message["role"] == "assistant"
        for call in message["tool_calls"]
    ]


async def _play(
    package: EnvPackage,
    template: str,
    config: LabAgentConfig,
    args: dict[str, Any],
    player: ScriptedPolicy,
) -> Episode:
    from hud.eval import LocalRuntime, Task

    runtime: Any = LocalRuntime(package.build or package.env_file)
    return await play(
        Task(env=package.name, id=template, args=args, slug=template),
        config,
        ScriptedTransport(player),
        runtime=runtime,
        id=f"try-{args['seed']}",
        group="try",
    )
