"""The main job: every stage of a recipe, and the folder that shows what came of it.

    recipe ──▶ stages ──▶ summary.json ──▶ report.html

`run_recipe` is a coroutine, so that a terminal (`asyncio.run`) and a notebook (`await`) start it
alike. Invariant: cancelling it at any point leaves a folder that `resume=True` goes on from.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import metadata
from time import perf_counter
from typing import Any

from cua_lab.recipes import Recipe, dump_recipe
from cua_lab.records import FORMAT
from cua_lab.run.collector import objects_set_aside
from cua_lab.run.folder import RunFolder
from cua_lab.run.measure import describe_result
from cua_lab.run.memory import peak_rss_gib
from cua_lab.run.progress import Progress
from cua_lab.run.recovery import is_finished, recover
from cua_lab.run.stage import StageRun
from cua_lab.run.stage_context import StageContext, build_stage, demonstrator_of
from cua_lab.run.stage_processes import StageProcesses, clear_stage
from cua_lab.run.trainers import check_launch, dismiss
from cua_lab.training.ranks import ALONE, Ranks
from cua_lab.viz.report import write_report
from cua_lab.waiting import telling
from cua_lab.watchdog import watchdog

PACKAGES = ("cua-lab", "hud", "torch", "transformers", "tokenizers", "numpy", "asyncvnc")


async def run_recipe(recipe: Recipe, folder: RunFolder, *, ranks: Ranks = ALONE) -> dict[str, Any]:
    """Run or go on with a recipe, on rank 0; returns the summary that it wrote."""
    import torch

    torch.set_num_threads(recipe.run.threads)
    check_launch(recipe, ranks)
    # All mistakes are told before any work.
    contexts = [build_stage(recipe, stage) for stage in recipe.stages]
    for context in contexts:
        demonstrator_of(context)
    with folder.begin() as held, watchdog(recipe.run.watchdog_minutes):
        progress = recover(recipe, held)
        held.write("config.yaml", dump_recipe(recipe))
        await _play(recipe, contexts, held, progress, ranks)
        dismiss(ranks)
        summary = summarise(recipe, progress)
        held.write_json("summary.json", summary)
        write_report(held.path)
    return summary


async def _play(
    recipe: Recipe,
    contexts: Sequence[StageContext],
    folder: RunFolder,
    progress: Progress,
    ranks: Ranks,
) -> None:
    """What is left of each stage; however it ends, the time that it took is added."""
    started, earlier = perf_counter(), progress.seconds
    try:
        await _play_stages(recipe, contexts, folder, progress, ranks)
    except BaseException:
        with suppress(OSError):  # the disk may be full: what is said is why the run ended
            progress.save_seconds(folder, earlier + perf_counter() - started)
        raise
    progress.seconds = earlier + perf_counter() - started
    progress.save(folder)


async def _play_stages(
    recipe: Recipe,
    contexts: Sequence[StageContext],
    folder: RunFolder,
    progress: Progress,
    ranks: Ranks,
) -> None:
    """Each stage in its turn: played here, or taken over from the process that plays it."""
    left = [context for context in contexts if not is_finished(context.stage, progress)]
    for context in contexts:
        if context not in left:
            clear_stage(folder, context.stage.name)
    not_begun = [s.stage.name for s in left if not progress.stage(s.stage.name).warm]
    with StageProcesses(recipe, folder, not_begun) as beside, telling(beside.told):
        for context in left:
            name = context.stage.name
            if beside.apart(name):
                await beside.take_over(name, progress)
            else:
                await beside.play_here(name, partial(_play_here, context, folder, progress, ranks))


async def _play_here(
    context: StageContext, folder: RunFolder, progress: Progress, ranks: Ranks
) -> None:
    run = StageRun.open(context, folder, progress, ranks)
    with objects_set_aside():
        await run.run()


def summarise(recipe: Recipe, progress: Progress) -> dict[str, Any]:
    """`summary.json`: every field of the contract, measured or null."""
    tally = progress.tally
    return {
        "format": FORMAT,
        "recipe": recipe.name,
        "seed": recipe.run.seed,
        "versions": versions(),
        "machine": machine(recipe.run.threads),
        "tasks": {
            stage.tasks.template: task_summary(progress, stage.name) for stage in recipe.stages
        },
        "logprob_gap_max": tally.logprob_gap_max,
        "first_ratio_max_error": tally.first_ratio_max_error,
        "episodes": {name: tally.episodes.get(name, 0) for name in _STATUSES},
        "failures": tally.causes,
        "divergences": {name: tally.divergences.get(name, 0) for name in _DIVERGENCES},
        "tokens": tally.tokens,
        "seconds": tally.seconds | {"total": progress.seconds},
        "tokens_per_s": tally.rates(),
        "peak_rss_gib": max(peak_rss_gib(), tally.memory_gib or 0.0),
    }


_STATUSES = ("completed", "truncated", "failed")
_DIVERGENCES = ("white_space", "json", "resplit", "rewrite")


def task_summary(progress: Progress, name: str) -> dict[str, Any]:
    """One task, before and after, and what the ablations say."""
    stage = progress.stage(name)
    assert stage.before is not None
    assert stage.after is not None
    summary: dict[str, Any] = {}
    for when, measured in (("before", stage.before), ("after", stage.after)):
        summary |= {f"{key}_{when}": value for key, value in measured.record().items()}
    return summary | {
        "ablations": {n: m.record()["reward"] for n, m in stage.ablations.items()},
        "ablations_success": {n: m.record()["success"] for n, m in stage.ablations.items()},
        "learnt": describe_result(stage.before, stage.after, stage.ablations),
    }


def versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {
        name: metadata.version(name) for name in PACKAGES
    }


def machine(threads: int) -> dict[str, Any]:
    import os

    import psutil

    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "threads": threads,
    }


def _cpu() -> str:
    """The processor's name, where the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [
                line.split(":", 1)[1].strip() for line in file if line.startswith("model name")
            ]
        return names[0] if names else platform.processor() or "unknown"
    except OSError:
        return platform.processor() or "unknown"
