"""The task of the loops: one screen, one red button, one click.

A start is a number; the same number is the same screen. Invariant: the reward is read from the
app's state, never from what the policy says.

The real ones are the HUD env packages in `cua_lab.envs`, whose apps are played over RFB.
"""

from __future__ import annotations

import json

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.schema import CallError, parse_call, tool_schema
from cua_lab.demonstrators.demos import ClickPlayer, PromptContext
from cua_lab.envs.lab.grading import click_distance
from cua_lab.serving.toolcalls import parse_tool_calls

SIDE = 96
"""px; the smallest screen that is legible: nine image tokens."""
TOOL = ToolConfig(actions=("click",), coordinate_space="0-1000", pace_ms=0)
FRESH = 1_000_000
"""Starts from here on are in no demonstration."""


def click_player() -> ClickPlayer:
    """Demonstrates the task: clicks a little beside the button's middle."""
    prompt = PromptContext(system=None, tools=(tool_schema(TOOL, (SIDE, SIDE)),))
    alone = (("distractors", (0, 0)), ("box_width", (32, 40)), ("box_height", (32, 40)))
    return ClickPlayer(prompt, width=SIDE, height=SIDE, noise=0.08, options=alone)


def grade(player: ClickPlayer, start: int, answer: str) -> float:
    """1 inside the button; outside at most 0.5, falling with the distance; 0 without a click."""
    app = player.app_of(start)
    for said in parse_tool_calls(answer, {"computer"}).calls:
        try:
            call = parse_call(json.loads(said.arguments), player.view, TOOL)
        except CallError:
            continue  # the real tool answers with the error, and the policy may try again
        if call.at is not None:
            app.pointer(*call.at, call.button)
    return click_distance(app.state(), app.size).reward
