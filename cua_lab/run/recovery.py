"""Where a stopped run goes on: the state of its last checkpoint, and not one record more.

A run may be killed between any two of its writes. Invariant: after `recover`, progress, checkpoints
and record files are what they were together at one moment of an uninterrupted run, so that going on
gives the same bits and counts nothing twice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cua_lab import files
from cua_lab.errors import LabError
from cua_lab.recipes import Recipe, Stage
from cua_lab.run.folder import RunFolder
from cua_lab.run.progress import FILE, Progress, StageProgress
from cua_lab.training.checkpoint import (
    checkpoint_extra,
    latest_checkpoint,
    prune_checkpoints,
    remove_checkpoints,
)

MANIFEST = "manifest.json"
"""Size and digest of each file of a warm-up."""


def recover(recipe: Recipe, folder: RunFolder) -> Progress:
    """The progress that fits the checkpoints; what was recorded after it is dropped."""
    progress = Progress.load(folder)
    if all(is_finished(stage, progress) for stage in recipe.stages):
        return progress
    if progress.saved is not None and progress.sizes is None:
        raise LabError(
            f"{folder.path / FILE} was written by an earlier version of cua-lab, whose runs can be"
            " looked at (cua-lab report) but not gone on with; start over with --overwrite, or"
            " choose another --name"
        )
    for stage in recipe.stages:
        if not is_finished(stage, progress):
            progress = _of_checkpoints(stage, folder, progress)
            prune_checkpoints(folder.checkpoints / stage.name, recipe.run.keep_checkpoints)
            break
    folder.cut(progress.sizes or {})
    progress.save(folder)
    return progress


def is_finished(stage: Stage, progress: Progress) -> bool:
    """Whether every phase of a stage is done."""
    state = progress.stage(stage.name)
    done = {*state.ablations} >= {*stage.eval.ablations}
    return state.warm and state.before is not None and state.after is not None and done


def _of_checkpoints(stage: Stage, folder: RunFolder, progress: Progress) -> Progress:
    """Progress as of the newest whole checkpoint of a stage that is not finished."""
    root = folder.checkpoints / stage.name
    state = progress.stage(stage.name)
    if state.fallback is None:  # GRPO has not begun: whatever lies there is another run's
        remove_checkpoints(root)
        return progress
    saved = latest_checkpoint(root)
    if saved is None:
        remove_checkpoints(root)
        return _begun(stage, folder, progress, state)
    record = checkpoint_extra(saved).get("progress")
    found = Progress.read(record, saved)
    step = found.stage(stage.name).step
    remove_checkpoints(root, after=step)
    if step == state.step:
        return progress
    found.seconds = max(found.seconds, progress.seconds)
    return found


def _begun(stage: Stage, folder: RunFolder, progress: Progress, state: StageProgress) -> Progress:
    """As GRPO began: its first checkpoint was not yet written, or none can be read any more."""
    if state.step == 0 and state.after is None:
        return progress
    record: Any = state.fallback
    found = Progress.read(record, folder.path / FILE)
    found.stage(stage.name).fallback = state.fallback
    found.seconds = progress.seconds
    return found


def write_manifest(folder: Path) -> None:
    """Size and digest of each file of a warm-up, before it has its name."""
    text = json.dumps(files.digests(folder), indent=1)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def whole_warm_up(folder: RunFolder, stage: str) -> Path:
    """The checkpoint after the warm-up, refused where it is not what was written."""
    path = folder.warm_up(stage)
    try:
        listed = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        problem = files.mismatch(path, listed)
    except FileNotFoundError as error:  # of an earlier version, where nothing was listed
        problem = None if path.is_dir() else str(error)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        problem = f"{MANIFEST} cannot be read ({error})"
    if problem:
        raise LabError(
            f"the warm-up of {stage!r} in {path} is damaged: {problem}; start over with --overwrite"
        )
    return path
