"""Many episodes in one process: nothing of them stays, once the caches are full.

By day a few, for descriptors, tasks, threads, processes and temporary folders, which must be flat
from the first block to the last; by night 1,000 on the embedded desktop and 200 on real browsers,
with the memory's slope.
"""

import asyncio
import gc
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hud.eval import LocalRuntime, Task

from cua_lab.demonstrators.expert_play import expert_config
from cua_lab.envs.browser.env import build as build_browser
from cua_lab.play.episode import Episode, play, play_slots
from cua_lab.play.scripted import ScriptedTransport
from cua_lab.recipes import parse_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.progress import Progress
from cua_lab.run.stage import StageRun
from cua_lab.run.stage_context import build_stage
from tests.conftest import needs_chromium
from tests.run.support_faults import over_the_wire
from tests.run.support_kill import TINY

SLOPE_MIB = 1.0
"""For 100 episodes."""
Play = Callable[[int, int], Awaitable[Sequence[Episode]]]
"""The first plan and how many -> their episodes."""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files that nobody else uses."""
    folder = Path(tempfile.mkdtemp(prefix="l", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def held(temporary: Path) -> dict[str, int]:
    """What a process has, besides memory."""
    process = psutil.Process()
    return {
        "descriptors": process.num_fds(),
        "tasks": len(asyncio.all_tasks()),
        "threads": process.num_threads(),
        "processes": len(process.children(recursive=True)),
        "temporary": sum(1 for _ in temporary.iterdir()),
    }


async def blocks(
    play: Play, count: int, size: int, temporary: Path
) -> tuple[list[dict[str, int]], list[float]]:
    """After each block of episodes: what is held, and the resident memory in MiB."""
    seen, memory = [], []
    for start in range(0, count, size):
        episodes = await play(start, size)
        assert len(episodes) == size
        assert [e.error for e in episodes if e.status == "failed"] == []
        del episodes
        await asyncio.sleep(0.05)  # what was closed says goodbye
        gc.collect()
        seen.append(held(temporary))
        memory.append(psutil.Process().memory_info().rss / 2**20)
    return seen, memory


def slope(memory: Sequence[float], size: int) -> float:
    """MiB for 100 episodes: the median of the slopes between all pairs (Theil and Sen), so that one
    block in which the allocator took or gave back an arena does not decide."""
    pairs = [
        (memory[b] - memory[a]) / (b - a)
        for a in range(len(memory))
        for b in range(a + 1, len(memory))
    ]
    return float(np.median(pairs)) * 100 / size


def check_flat(seen: Sequence[dict[str, int]], warm: int) -> None:
    """Nothing grows from the first warm block to the last."""
    for name in seen[0]:
        values = [block[name] for block in seen[warm:]]
        assert max(values) <= values[0] + 1, (name, values)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StageRun]:
    """A small engine whose policy clicks, with caches that are full after some 50 episodes.

    With the usual 256 MiB each they fill for a thousand and more: an episode of one screen adds
    0.22 MiB, the patches of its screenshot (0.21 MiB) nearly all of it, which was taken for a leak.
    """
    over_the_wire(monkeypatch)
    recipe = parse_recipe(TINY, name="tiny", overrides=["run.concurrency=10", "engine.cache_mib=4"])
    context = build_stage(recipe, recipe.stages[0])
    opened = StageRun.open(context, RunFolder(tmp_path), Progress())
    opened.worker.timeout_s = 600.0
    full = 4 * 2**20
    for cache in (opened.engine.chats._known, opened.policy.vision._cache):
        cache.max_bytes = full
    opened.engine._features._known.max_bytes = full
    yield opened
    opened.engine.close()


def embedded(stage: StageRun) -> Play:
    async def play(first: int, count: int) -> Sequence[Episode]:
        return await stage.worker.play(stage.context.fresh_plans(f"load-{first}", count))

    return play


def test_a_few_blocks_leave_no_descriptor_task_thread_process_or_folder(
    stage: StageRun, temporary: Path
) -> None:
    seen, _ = asyncio.run(blocks(embedded(stage), 80, 20, temporary))
    check_flat(seen, warm=1)


@pytest.mark.nightly
def test_a_thousand_embedded_episodes_leave_nothing(
    stage: StageRun, temporary: Path, counted: Any
) -> None:
    seen, memory = asyncio.run(blocks(embedded(stage), 1000, 50, temporary))
    print("memory", [round(value) for value in memory], seen[-1])
    check_flat(seen, warm=4)
    grows = slope(memory[8:], 50)
    counted("load-embedded", episodes=1000, slope_mib_per_100=round(grows, 3))
    assert grows < SLOPE_MIB, memory


def on_browsers(at_once: int) -> Play:
    runtime = LocalRuntime(build_browser)

    async def one(index: int) -> Episode:
        task = Task(env="browser", id="2048-score", args={"seed": index, "turns": 2}, slug="2048")
        keys = {"action": "press", "keys": ["left", "down", "right", "up"]}
        return await play(
            task,
            expert_config(),
            ScriptedTransport(lambda messages: keys),
            runtime=runtime,
            id=f"e{index}",
            group="g",
            timeout_s=600,
        )

    async def several(first: int, count: int) -> Sequence[Episode]:
        return await play_slots(
            range(first, first + count),
            lambda index, slot: one(index),
            concurrency=at_once,
            leave=lambda k: None,
        )

    return several


@pytest.mark.browser
@pytest.mark.nightly
def test_two_hundred_browser_episodes_leave_nothing(temporary: Path, counted: Any) -> None:
    needs_chromium()
    seen, memory = asyncio.run(blocks(on_browsers(2), 200, 10, temporary))
    print("memory", [round(value) for value in memory], seen[-1])
    for block in seen:
        del block["processes"]  # Chromium's own come and go
    check_flat(seen, warm=4)
    grows = slope(memory[6:], 10)
    counted("load-browser", episodes=200, slope_mib_per_100=round(grows, 3))
    assert grows < SLOPE_MIB, memory


def test_the_slope_is_that_of_a_leak_and_not_of_one_step() -> None:
    assert slope([100.0, 101.0, 102.0, 103.0], 50) == pytest.approx(2.0)
    assert slope([100.0] * 5 + [130.0], 50) == 0.0
