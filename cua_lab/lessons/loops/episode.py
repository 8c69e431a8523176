"""One episode in one file: look, say, act, and be graded.

    app.draw() ──▶ messages ──template──▶ ids ──decode──▶ answer ──parse──▶ call ──keys──▶ app
         └──────────────────────────── once a turn ◀────────────────────────────────────────┘

Invariant: a turn keeps the ids of its prompt and of its answer as they were. Training reads these
and never the text: text can be written in many ways, a sequence of ids is one thing.

The real one, `cua_lab.play.episode`, adds
- HUD, which starts, runs and grades the task, and its agent with a tool (`cua_lab.play.agent`),
- a desktop behind RFB, and a pause until its screen has settled (`cua_lab.computer.tool`),
- an engine over HTTP and the exact ids out of its answers (`cua_lab.serving.shim`),
- errors told to the policy, which may try again; here a wrong call ends the episode,
- failures that are not grades, time limits, many episodes at once (`cua_lab.play.worker`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from PIL import Image

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.schema import Call, CallError, parse_call, tool_schema, view_of
from cua_lab.dataset.conversations import DONE
from cua_lab.demonstrators.demos import SCREEN, corpus_of
from cua_lab.desktop.app import App
from cua_lab.envs.lab.grading import click_distance
from cua_lab.lessons.loops.click_task import FRESH, TOOL, click_player
from cua_lab.lessons.loops.decode import decode
from cua_lab.lessons.loops.sft import sft
from cua_lab.policy.model import SHAPES
from cua_lab.policy.policy import Policy, build_policy
from cua_lab.policy.scoring import Example
from cua_lab.policy.template import Message, expand_images, render
from cua_lab.policy.vision import tokens_of
from cua_lab.seeds import derive_seed
from cua_lab.serving.toolcalls import parse_tool_calls
from cua_lab.stitching.turn import Turn


@dataclass(frozen=True, slots=True)
class Episode:
    """What is kept."""

    turns: tuple[Turn, ...]
    calls: tuple[Call, ...]  # what was done; the reward is read from the app


def play(
    policy: Policy, app: App, task: str, tool: ToolConfig, *, turns: int, max_tokens: int, seed: int
) -> Episode:
    """Play `app` for at most `turns` turns, each answer of at most `max_tokens`."""
    tools = [tool_schema(tool, app.size)]
    screens = [app.draw()]
    image = {"type": "image"}
    messages: list[Message] = [{"role": "user", "content": [{"type": "text", "text": task}, image]}]
    kept: list[Turn] = []
    calls: list[Call] = []
    for number in range(turns):
        # 1. Look: the whole conversation so far, every screenshot in its place.
        prompt = _prompt(policy, render(policy.tokenizer, messages, tools), screens)

        # 2. Say. The seed is the turn's own, so a turn played again says the same.
        own_seed = derive_seed(seed, "turn", number)
        answer = decode(policy, prompt, max_tokens=max_tokens, seed=own_seed)
        kept.append(Turn(tuple(prompt.ids), answer.ids, answer.logprobs))

        # 3. Read the call; whatever cannot be read ends the episode.
        said = parse_tool_calls(policy.tokenizer.decode(answer.ids[:-1]), {"computer"})
        if not said.calls:
            break
        arguments = json.loads(said.calls[0].arguments)
        try:
            call = parse_call(arguments, view_of(tool, app.size), tool)
        except CallError:
            break

        # 4. Act, and look again.
        _send(call, app)
        calls.append(call)
        screens.append(app.draw())
        made = {"function": {"name": "computer", "arguments": arguments}}
        messages += [
            {"role": "assistant", "content": said.text, "tool_calls": [made]},
            {"role": "tool", "content": DONE},
            {"role": "user", "content": [{"type": "text", "text": SCREEN}, image]},
        ]
    return Episode(tuple(kept), tuple(calls))


def _prompt(policy: Policy, ids: list[int], screens: list[Image.Image]) -> Example:
    patches = [policy.vision.patchify(screen) for screen in screens]
    grids = np.concatenate([grid for _, grid in patches])  # (n_images, 3)
    ids = expand_images(ids, tokens_of(grids, policy.merge), policy.image_token_id)  # (T,)
    return Example(ids, np.concatenate([pixels for pixels, _ in patches]), grids)


def _send(call: Call, app: App) -> None:
    if call.at is not None:
        app.pointer(*call.at, call.button)
        app.pointer(*call.at, 0)
    for chord in call.chords:
        for down in (True, False):
            for keysym in chord:
                app.key(keysym, down)


if __name__ == "__main__":
    player = click_player()
    policy = build_policy(SHAPES["smoke"], corpus_of((player,)), seed=0)
    first, *_, last = sft(policy, player, steps=60)
    print(f"warmed up: loss {first:.2f} -> {last:.2f}; the button, the click, the reward:")
    for start in range(FRESH, FRESH + 5):
        app = player.app_of(start)
        episode = play(policy, app, app.instruction, TOOL, turns=1, max_tokens=32, seed=start)
        reward = click_distance(app.state(), app.size).reward  # from the app's state alone
        print(f"{app.target.box.center}, clicked {[c.at for c in episode.calls]}: {reward:.2f}")
