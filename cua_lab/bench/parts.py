"""The parts of `cua-lab bench`: each does the same work in our way and in a named peer's.

    screenshot  a frame of the embedded desktop to the model's PNG   HUD's PNG, scaled by LANCZOS
    stitch      one episode of 24 turns made into one sequence       the published way
    decode      48 tokens for each of 32 prompts with a screenshot   transformers' `generate`
    episode     one scripted click, graded                           HUD's empty episode
    settle      a key on an animated page of a real browser          a fixed sleep of 300 ms

Invariant: a part that compares results says in its note whether they are equal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from hud import Environment
from hud.agents.base import Agent
from hud.capabilities import Capability, RFBClient
from hud.eval import LocalRuntime, Run, Task

from cua_lab.bench.browser_bench import downscaled, settling
from cua_lab.bench.pairs import Pair, Timing, interleaved, pairs_of
from cua_lab.bench.published_stitch import stitch_by_walking
from cua_lab.bench.stitch_bench import episode
from cua_lab.computer.config import ToolConfig
from cua_lab.computer.screen import Screen
from cua_lab.computer.tool import ComputerTool
from cua_lab.desktop.apps.targets import Targets
from cua_lab.desktop.rfb import RFBServer
from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import GenerationRequest
from cua_lab.engine.token_sampling import SamplingParams
from cua_lab.pictures import png_bytes
from cua_lab.play.episode import play
from cua_lab.play.scripted import ScriptedTransport, in_turn
from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import Example
from cua_lab.recipes import load_recipe
from cua_lab.run.stage_context import StageContext, build_stage, demonstrator_of, new_policy
from cua_lab.stitching.stitch import stitch
from cua_lab.stitching.turn import Turn
from cua_lab.training.warmup import make_prompt

PROMPTS, TOKENS = 32, 48
FIXED = "sleep 300 ms"


async def screenshot(rounds: int) -> list[Pair]:
    """What a policy that sees 512 pixels gets of a screen of 1280 x 1200."""
    async with RFBServer(Targets(2, width=1280, height=1200, seed=0)) as server:
        screen = await Screen.connect(Capability.rfb(url=server.url))
        hud = await RFBClient.connect(Capability.rfb(url=server.url))
        try:
            tool = ComputerTool(client=screen, config=ToolConfig(screenshot_width=512))

            async def published() -> bytes:
                png, _ = await hud.screenshot_png()
                return downscaled(png, 512)

            ways = {"computer tool": tool.screenshot, "HUD's PNG, then LANCZOS": published}
            return pairs_of(
                "screenshot", "1280x1200 to 512 wide", await interleaved(ways, rounds=rounds)
            )
        finally:
            await screen.close()
            await hud.close()


async def stitching(rounds: int) -> list[Pair]:
    """24 turns, each of which the next prompt shows with other white space."""
    made, codec = episode(24, diverging=True)
    turns = [Turn(tuple(p), tuple(o), (-0.5,) * len(o)) for p, o in made]
    ways = {
        "stitch": _async(partial(stitch, turns, codec)),
        "the published way": _async(partial(stitch_by_walking, turns, codec)),
    }
    return pairs_of("stitch", "24 turns with divergences", await interleaved(ways, rounds=rounds))


async def decode(rounds: int) -> list[Pair]:
    """Greedy answers of the laptop recipe's click policy with random weights."""
    setup = _click()
    demonstrator = demonstrator_of(setup)
    assert demonstrator is not None  # the lab's own recipes bring one
    policy = new_policy(setup, demonstrator)
    demos = [demonstrator(index) for index in range(PROMPTS)]
    examples = [make_prompt(policy, demo) for demo in demos]
    pictures = [[png_bytes(image) for image in demo.images[:1]] for demo in demos]
    engine = Engine(policy, max_batch=PROMPTS)
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    requests = [
        GenerationRequest(engine.prompt(_one_pad(policy, example.ids), images), params)
        for example, images in zip(examples, pictures, strict=True)
    ]

    async def ours() -> list[tuple[int, ...]]:
        engine.flush_cache()  # else every round but the first would be without a prefill
        slots = engine.open_slots(PROMPTS)
        try:
            seated = zip(requests, slots, strict=True)
            answers = await asyncio.gather(
                *(engine.complete(_at(request, slot)) for request, slot in seated)
            )
        finally:
            for slot in slots:
                engine.close_slot(slot)
        return [answer.choices[0].ids for answer in answers]

    try:
        ways = {
            "engine": ours,
            "generate, one at a time": _async(
                lambda: [_generate(policy, [example])[0] for example in examples]
            ),
            "generate, batched": _async(lambda: _generate(policy, examples)),
        }
        batched = _generate(policy, examples)
        equal = sum(a == b for a, b in zip(await ours(), batched, strict=True))
        return pairs_of(
            "decode",
            f"{PROMPTS} prompts of {len(examples[0].ids)} tokens, {TOKENS} new ones each",
            await interleaved(ways, rounds=rounds),
            f"{equal} of {PROMPTS} greedy answers equal",
        )
    finally:
        engine.close()


async def through_hud(rounds: int) -> list[Pair]:
    """One scripted click, graded, beside an episode of HUD's in which nothing happens."""
    setup = _click()
    empty = LocalRuntime(_empty)
    nobody, nothing = _Nobody(), Task(env="empty", id="nothing")
    player = in_turn([{"action": "click", "x": 500, "y": 500}])
    (plan,) = setup.fresh_plans("bench", 1)

    async def ours() -> None:
        await play(
            plan.task,
            setup.config,
            ScriptedTransport(player),
            runtime=setup.runtime,
            id=plan.id,
            group=plan.group,
        )

    async def theirs() -> None:
        await nothing.run(nobody, runtime=empty)

    timings = await interleaved({"scripted click": ours, "empty episode": theirs}, rounds=rounds)
    return pairs_of("episode", "one episode of one turn", timings)


async def settle(rounds: int) -> list[Pair]:
    """On a real browser; needs one."""
    ways = {way.name: way for way in await settling(actions=rounds)}
    ours, fixed = ways["quiet framebuffer"], ways[FIXED]
    timings = {name: Timing(name, ways[name].each_ms) for name in (ours.name, FIXED)}
    stale = f"stale frames {ours.stale} and {fixed.stale} of {ours.actions}"
    return pairs_of("settle", "a key on an animated page", timings, stale)


PARTS: dict[str, Callable[[int], Awaitable[list[Pair]]]] = {
    "screenshot": screenshot,
    "stitch": stitching,
    "decode": decode,
    "episode": through_hud,
    "settle": settle,
}
"""By name: how many rounds -> what was found."""


def _async(run: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    async def way() -> Any:
        return run()

    return way


def _click() -> StageContext:
    recipe = load_recipe("laptop")
    return build_stage(recipe, recipe.stage("click"))


def _at(request: GenerationRequest, slot: int) -> GenerationRequest:
    return replace(request, slot=slot)


def _one_pad(policy: Policy, ids: Sequence[int]) -> list[int]:
    """As a prompt goes over the wire: one image token for each image."""
    pad = policy.image_token_id
    return [t for i, t in enumerate(ids) if t != pad or i == 0 or ids[i - 1] != pad]


@torch.no_grad()
def _generate(policy: Policy, examples: Sequence[Example]) -> list[tuple[int, ...]]:
    """transformers' own loop; prompts of one batch have one length, so that nothing is padded."""
    ids = torch.tensor(np.stack([example.ids for example in examples]))  # (B, T)
    model: Any = policy.model  # transformers' own class, which has `generate`
    out = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        pixel_values=torch.from_numpy(np.concatenate([e.pixels for e in examples])),
        image_grid_thw=torch.from_numpy(np.concatenate([e.grids for e in examples])),
        mm_token_type_ids=(ids == policy.image_token_id).int(),
        do_sample=False,
        max_new_tokens=TOKENS,
        eos_token_id=policy.vocab_size,  # which no token is
        suppress_tokens=list(policy.forbidden_ids),
    )
    return [tuple(row) for row in out[:, ids.shape[1] :].tolist()]


def _empty(_: Task | None = None) -> Environment:
    env = Environment("empty")

    @env.template(id="nothing")
    async def nothing() -> AsyncGenerator[Any, Any]:
        yield "do nothing"
        yield 1.0

    return env


class _Nobody(Agent):
    """An agent that does nothing."""

    async def __call__(self, run: Run) -> None:
        return None
