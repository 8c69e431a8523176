"""Ordinary play is never stopped: experts behind the gate, with the policy of each training env."""

import asyncio
import os
from contextlib import AsyncExitStack
from functools import partial

import pytest
from hud.eval import LocalRuntime, Task

from cua_lab.computer.config import ToolConfig
from cua_lab.demonstrators.expert_play import expert_config, play_expert
from cua_lab.demonstrators.experts import EXPERTS
from cua_lab.desktop.apps import Targets, Todo
from cua_lab.desktop.pool import DesktopPool
from cua_lab.envs.browser import env as browser
from cua_lab.envs.lab.env import build
from cua_lab.envs.lab.starts import list_to_complete
from cua_lab.play.agent import LabAgentConfig
from cua_lab.play.episode import play, play_slots
from cua_lab.play.scripted import ScriptedTransport, in_turn, random_keys
from cua_lab.safety.gate import Gate
from cua_lab.safety.policy_file import load_policy
from tests.conftest import needs_chromium

MANY = int(os.environ.get("CUA_LAB_ORDINARY_EPISODES", "500"))
"""Of each template, in the nightly tests."""
AT_ONCE = 5
"""Desktops of a nightly test: episodes on a browser wait more than they work."""


def middle(box):
    return {"x": (box.left + box.right) // 2, "y": (box.top + box.bottom) // 2}


def click(seed):
    level = 1 + seed % 3
    app = Targets(level, seed=seed)
    return {"level": level}, [{"action": "click", **middle(app.target.box)}]


def complete(seed):
    texts, wanted = list_to_complete(seed, 3, 2)
    boxes = Todo(items=texts, seed=seed).boxes
    marks = [boxes[f"check:{texts.index(text)}"] for text in wanted]
    return {"items": 3, "complete": 2}, [{"action": "click", **middle(box)} for box in marks]


CREATED = "Buy milk", "Call mum at 5", "Pay rent, 400", "Send mail: Anna", "Añadir sopa", "2+2=4"


def create(seed):
    text, app = CREATED[seed % len(CREATED)], Todo(count=2, seed=seed)
    how = seed // len(CREATED) % 4
    field, add = app.boxes["field"], app.boxes["add"]
    calls = [
        [{"action": "type", "text": f"{text}\n"}],
        [{"action": "click", **middle(field)}, {"action": "type", "text": text},
         {"action": "press", "keys": ["enter"]}],
        [{"action": "type", "text": text}, {"action": "click", **middle(add)}],
        [{"action": "press", "keys": ["x", "backspace"]}, {"action": "type", "text": text},
         {"action": "press", "keys": ["tab"]}, {"action": "press", "keys": ["enter"]}],
    ][how]  # fmt: skip
    return {"text": text}, calls


def keys(seed):
    return {}, random_keys(seed, 6.0, at_most=12)


ORDINARY = {
    "targets-click": click,
    "todo-complete": complete,
    "todo-create": create,
    "2048-score": keys,
    "2048-reach-tile": keys,
    "2048-near-win": keys,
    "2048-best-merge": keys,
}


async def stopped(env, template, start, seeds, runtimes, policy, config):
    """(task, seed, reason) of each call that was not simply allowed, and each success; as many
    episodes at once as there are runtimes."""
    gate = Gate(load_policy(policy))

    async def one(seed, slot):
        args, calls = start(seed)
        player = calls if callable(calls) else in_turn(calls)
        turns = 3 if callable(calls) else len(calls)
        return await play(
            Task(env=env, id=template, args={**args, "seed": seed, "turns": turns}, slug=template),
            config.model_copy(update={"gate": gate, "max_steps": turns}),
            ScriptedTransport(player),
            runtime=runtimes[slot],
            id=f"{template}-{seed}",
            group=template,
        )

    episodes = await play_slots(seeds, one, concurrency=len(runtimes))
    assert [e.error for e in episodes if e.error] == []
    assert all(e.judged for e in episodes)
    return [
        (template, seed, call.reason)
        for seed, episode in zip(seeds, episodes, strict=True)
        for call in episode.judged
        if call.outcome != "allowed"
    ], [e.success for e in episodes]


@pytest.mark.parametrize("template", ORDINARY)
@pytest.mark.parametrize(
    "count", [12, pytest.param(MANY, marks=pytest.mark.nightly)], ids=["few", "many"]
)
def test_the_lab_s_tasks_are_not_stopped(template, count) -> None:
    config = LabAgentConfig(tool=ToolConfig(pace_ms=0))
    found, succeeded = asyncio.run(
        stopped(
            "lab", template, ORDINARY[template], range(count), [LocalRuntime(build)], "lab", config
        )
    )
    assert found == []
    if template.startswith(("targets", "todo")):
        assert all(succeeded)  # an expert's play, not just anything


@pytest.mark.browser
@pytest.mark.parametrize("template", ["2048-score", "2048-near-win"])
@pytest.mark.parametrize(
    ("count", "at_once"),
    [(2, 1), pytest.param(MANY, AT_ONCE, marks=pytest.mark.nightly)],
    ids=["few", "many"],
)
def test_the_browser_s_games_are_not_stopped(desktops, template, count, at_once) -> None:
    async def scenario(pool):
        async with AsyncExitStack() as lent:
            own = [await lent.enter_async_context(pool.lend()) for _ in range(at_once)]
            runtimes = [LocalRuntime(partial(on_desktop, desktop)) for desktop in own]
            config = LabAgentConfig(tool=ToolConfig(**browser.TOOL))
            return await stopped("browser", template, keys, range(count), runtimes, "lab", config)

    async def of_its_own():
        async with DesktopPool(at_once, *browser.SIZE) as pool:
            return await scenario(pool)

    found, _ = asyncio.run(scenario(desktops) if at_once <= desktops.count else of_its_own())
    assert found == []


def on_desktop(desktop, task):
    return browser.build_on(desktop)


@pytest.mark.browser
@pytest.mark.nightly
def test_the_experts_of_miniwob_are_not_stopped() -> None:
    """Every page that an expert plays, the same number of starts each."""
    needs_chromium()
    gate = Gate(load_policy("miniwob"))
    plans = [(page, seed) for seed in range(-(-MANY // len(EXPERTS))) for page in EXPERTS]
    config = expert_config().model_copy(update={"gate": gate})

    async def scenario():
        async with DesktopPool(AT_ONCE, 320, 420, scale=2.0) as pool, AsyncExitStack() as lent:
            own = [await lent.enter_async_context(pool.lend()) for _ in range(AT_ONCE)]
            return await play_slots(
                plans,
                lambda plan, slot: play_expert(own[slot], *plan, config=config),
                concurrency=AT_ONCE,
            )

    episodes = asyncio.run(scenario())
    found = [
        (*plan, call.reason)
        for plan, episode in zip(plans, episodes, strict=True)
        for call in episode.judged or ()
        if call.outcome != "allowed"
    ]
    failed = [(*plan, e.error) for plan, e in zip(plans, episodes, strict=True) if e.error]
    print(len(plans), "episodes,", len(failed), "failed:", failed)
    assert found == []
    assert len(failed) <= len(plans) // 20  # an expert may lose its way where no gate is
