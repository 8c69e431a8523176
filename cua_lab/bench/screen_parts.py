"""The bench's parts about screens: a screenshot, settling, an episode's way through HUD.

screenshot  a frame of the embedded desktop to the model's PNG   HUD's PNG, scaled by LANCZOS
settle      a key on an animated page of a real browser          a fixed sleep of 300 ms
episode     one scripted click, graded                           HUD's empty episode
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

from hud import Environment
from hud.agents.base import Agent
from hud.capabilities import Capability, RFBClient
from hud.eval import LocalRuntime, Run, Task

from cua_lab.bench.browser_bench import (
    MOVING_MS,
    downscaled,
    screenshot_paths,
    settling,
    together,
)
from cua_lab.bench.machine_limits import Limits, best_s
from cua_lab.bench.pairs import Measured, Pair, Timing, Way, growing, interleaved, pairs_of
from cua_lab.computer.config import ToolConfig
from cua_lab.computer.screen import Screen
from cua_lab.computer.tool import ComputerTool
from cua_lab.desktop.apps.targets import Targets
from cua_lab.desktop.rfb import RFBServer
from cua_lab.errors import LabError
from cua_lab.pictures import png_bytes, read_base64, read_rgb
from cua_lab.play.episode import play
from cua_lab.play.scripted import ScriptedTransport, in_turn
from cua_lab.play.worker import Plan
from cua_lab.recipes import load_recipe
from cua_lab.run.stage_context import StageContext, build_stage

FIXED, PUBLISHED = "sleep 300 ms", "HUD's PNG, then LANCZOS"
TURNS = (2, 4, 8, 16)


async def screenshot(rounds: int, top: Limits) -> Measured:
    """What a policy that sees 512 pixels gets of a screen of 1280 x 1200."""
    async with RFBServer(Targets(2, width=1280, height=1200, seed=0)) as server:
        screen = await Screen.connect(Capability.rfb(url=server.url))
        hud = await RFBClient.connect(Capability.rfb(url=server.url))
        try:
            tool = ComputerTool(client=screen, config=ToolConfig(screenshot_width=512))

            async def published() -> bytes:
                png, _ = await hud.screenshot_png()
                return downscaled(png, 512)

            content: Any = (await tool.screenshot()).content[0]
            shown = read_rgb(read_base64(content.data))
            ways = {"computer tool": tool.screenshot, PUBLISHED: published}
            return Measured(
                pairs_of(
                    "screenshot",
                    "1280x1200 to 512 wide",
                    await interleaved(ways, rounds=rounds),
                    limit="this picture as PNG at level 1",
                    limit_ms=best_s(lambda: png_bytes(shown, compress_level=1), 5) * 1e3,
                    why="the frame is scaled where it lies, by HAMMING, and encoded"
                    " once; HUD's is encoded at full size, read again, scaled and encoded again",
                )
            )
        finally:
            await screen.close()
            await hud.close()


async def settle(rounds: int, top: Limits) -> Measured:
    """On a real browser; needs one."""
    paths, crowd = await screenshot_paths(repeats=rounds), await together(actions=rounds)
    shot = {
        "computer tool": Timing("computer tool", paths.ours_ms),
        PUBLISHED: Timing(PUBLISHED, paths.hud_ms),
    }
    what = "a real browser's 1280x1200 to 512 wide"
    many = (
        f"; {crowd.desktops} browsers at once: {crowd.actions_per_s:.0f} actions/s,"
        f" {crowd.latency_ms:.0f} ms each"
    )
    return Measured(
        pairs_of("settle", what, shot, clock="wall")
        + await _settled_pairs(rounds, MOVING_MS, many)
        + await _settled_pairs(rounds, 0, "")
    )


async def _settled_pairs(rounds: int, moving_ms: int, more: str) -> list[Pair]:
    ways = {way.name: way for way in await settling(actions=rounds, moving_ms=moving_ms)}
    ours, fixed = ways["quiet framebuffer"], ways[FIXED]
    moves = f"moves for {moving_ms} ms" if moving_ms else "jumps at once"
    return pairs_of(
        "settle",
        f"a key on a page that {moves}",
        {name: Timing(name, ways[name].each_ms) for name in (ours.name, FIXED)},
        note=f"stale frames {ours.stale} and {fixed.stale} of {ours.actions}{more}",
        clock="wall",
        limit="the page's own movement" if moving_ms else "",
        limit_ms=float(moving_ms) or None,
        why="a page is shown once the server has sent no change for a while; a fixed sleep is"
        " too long for a page at rest and too short for one that moves longer",
    )


async def episode(rounds: int, top: Limits) -> Measured:
    """One scripted click, graded, beside an episode of HUD's in which nothing happens."""
    recipe = load_recipe("laptop")
    context = build_stage(recipe, recipe.stage("click"))
    nobody, nothing, empty = _Nobody(), Task(env="empty", id="nothing"), LocalRuntime(_empty)
    (plan,) = context.fresh_plans("bench", 1)

    async def theirs() -> None:
        await nothing.run(nobody, runtime=empty)

    args = context.variants[0].args
    screen = Targets(2, width=args["width"], height=args["height"], seed=0).draw()
    ways: dict[str, Way] = {
        "scripted click": partial(_scripted, context, plan, 1),
        "empty episode": theirs,
    }
    pairs = pairs_of(
        "episode",
        "one episode of one turn",
        await interleaved(ways, rounds=rounds),
        limit="two screenshots as PNG at level 1 and four round trips",
        limit_ms=2e3 * best_s(lambda: png_bytes(screen, compress_level=1), 5) + 4 * top.loopback_ms,
        why="the peer starts an env, grades and ends; ours also connects a screen, shows it twice,"
        " asks a player, clicks, and reads the state for the grade. Nothing of it goes over HTTP or"
        " a socket of ours; both sides pay HUD's own control channel",
    )
    sizes: dict[int, Way] = {turns: partial(_scripted, context, plan, turns) for turns in TURNS}
    return Measured(pairs, [await growing("episode", "turns", sizes, rounds=rounds)])


async def _scripted(context: StageContext, plan: Plan, turns: int) -> None:
    """Looks, and at last a click."""
    looks = [{"action": "move", "x": 50, "y": 50}] * (turns - 1)
    config = context.config.model_copy(
        update={"max_steps": turns, "stop_on": set(), "tool": ToolConfig(pace_ms=0)}
    )
    args = {**plan.task.args, "turns": turns}
    task = Task(env=plan.task.env, id=plan.task.id, args=args, slug=plan.task.slug)
    played = await play(
        task,
        config,
        ScriptedTransport(in_turn([*looks, {"action": "click", "x": 50, "y": 50}])),
        runtime=context.runtime,
        id=plan.id,
        group=plan.group,
    )
    if played.reward is None or len(played.actions) != turns:
        raise LabError(f"the bench's own episode failed: {played.error}")


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
