"""Checkpoints of a training run: whole or not there.

    <root>/step-000010/              a plain Hugging Face folder, which any engine loads; or an
                                     adapter alone, where only an adapter learns
    <root>/step-000010/training/     optimizer.safetensors, rng.safetensors, state.json

Invariants: a checkpoint is written beside its place, flushed to disk and renamed into it, and
`state.json` lists every file with size and digest, so that a torn one is never picked up; nothing
is pickled; going on from a checkpoint gives the same bits as never having stopped.
"""

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from cua_lab.errors import LabError
from cua_lab.policy.weights import weights_for

if TYPE_CHECKING:
    from cua_lab.policy.policy import Policy

STATE = "training/state.json"
NAME = re.compile(r"step-(\d{6,})")


class Trainer(Protocol):
    """Whoever trains a policy: by GRPO or by SFT."""

    policy: "Policy"
    optimizer: Any
    """torch.optim.AdamW over the parameters that learn."""
    state: Any
    """A dataclass of counters, `step` among them."""


class Weights(Protocol):
    """The part of a policy that learns, where it is not all of it."""

    def save(self, folder: Path) -> Any: ...

    def load(self, folder: Path) -> None: ...


def save_checkpoint(
    root: Path,
    trainer: Trainer,
    *,
    keep: int = 2,
    extra: Mapping[str, Any] | None = None,
    weights: Weights | None = None,
) -> Path:
    """Write the trainer's state after its current step; keep the last `keep` checkpoints.

    `extra` is the caller's own JSON, given back by `load_checkpoint`. `weights`: what learns, where
    it is not the whole policy; the same is given to `load_checkpoint`.
    """
    target = root / f"step-{trainer.state.step:06d}"
    temporary = root / f".{target.name}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    _write(temporary, trainer, dict(extra or {}), weights)
    if target.exists():
        shutil.rmtree(target)
    temporary.rename(target)
    _flush(root)
    _prune(root, keep)
    return target


def latest_checkpoint(root: Path) -> Path | None:
    """The newest checkpoint whose files are all there as they were written; `None` without one."""
    for path in sorted(_all(root), reverse=True):
        if not corruption_of(path):
            return path
    return None


def corruption_of(path: Path) -> str | None:
    """What is wrong with a checkpoint, in words; `None` when it is whole."""
    try:
        files = json.loads((path / STATE).read_text())["files"]
    except (OSError, ValueError, KeyError) as error:
        return f"{STATE} cannot be read ({error})"
    for name, entry in files.items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != entry["bytes"] or _digest(file) != entry["sha256"]:
            return f"{name} is not what was written ({entry['bytes']} bytes)"
    return None


def load_checkpoint(
    path: Path, trainer: Trainer, *, weights: Weights | None = None
) -> dict[str, Any]:
    """Restore weights (in place: the engine shares them), optimizer, RNG and counters.

    Returns what `save_checkpoint` was given as `extra`. Whoever serves the weights must be told.
    """
    if problem := corruption_of(path):
        raise LabError(f"the checkpoint {path} is torn: {problem}; use an older one")
    state = json.loads((path / STATE).read_text())
    if weights is None:
        _restore_weights(path, trainer)
    else:
        weights.load(path)
    _restore_optimizer(_load_tensors(path / "training/optimizer.safetensors"), trainer)
    _restore_rng(_load_tensors(path / "training/rng.safetensors"))
    trainer.state = type(trainer.state)(**state["trainer"])
    return state["extra"]


def _all(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return [path for path in root.iterdir() if NAME.fullmatch(path.name) and path.is_dir()]


def _write(folder: Path, trainer: Trainer, extra: dict[str, Any], weights: Weights | None) -> None:
    from safetensors.torch import save_file

    (weights or trainer.policy).save(folder)
    (folder / "training").mkdir()
    save_file(_optimizer_tensors(trainer), folder / "training/optimizer.safetensors")
    save_file(_rng_tensors(), folder / "training/rng.safetensors")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    state = {
        "trainer": dataclasses.asdict(trainer.state),
        "extra": extra,
        "files": {
            path.relative_to(folder).as_posix(): {
                "bytes": path.stat().st_size,
                "sha256": _digest(path),
            }
            for path in files
        },
    }
    (folder / STATE).write_text(json.dumps(state, indent=1, allow_nan=False) + "\n")
    for path in [*files, folder / STATE, folder / "training", folder]:
        _flush(path)


def _flush(path: Path) -> None:
    """To the disk, not only to the system's cache: a rename may otherwise outlive its content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _prune(root: Path, keep: int) -> None:
    for path in sorted(_all(root))[: -max(1, keep)]:
        shutil.rmtree(path)
    for path in root.glob(".step-*"):  # left by a run that was killed while it wrote
        shutil.rmtree(path, ignore_errors=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _named(trainer: Trainer) -> dict[str, Tensor]:
    return {n: p for n, p in trainer.policy.model.named_parameters() if p.requires_grad}


def _optimizer_tensors(trainer: Trainer) -> dict[str, Tensor]:
    """AdamW's state as `<quantity>/<parameter>`; empty before the first update."""
    return {
        f"{quantity}/{name}": value.detach().contiguous()
        for name, parameter in _named(trainer).items()
        for quantity, value in trainer.optimizer.state.get(parameter, {}).items()
    }


def _restore_optimizer(tensors: dict[str, Tensor], trainer: Trainer) -> None:
    named = _named(trainer)
    trainer.optimizer.state.clear()
    for key, value in tensors.items():
        quantity, _, name = key.partition("/")
        if name not in named:
            raise LabError(f"the checkpoint's optimizer knows {name!r}, which the policy has not")
        trainer.optimizer.state[named[name]][quantity] = value.to(named[name].device)


def _rng_tensors() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    for index in range(torch.cuda.device_count()):
        states[f"cuda:{index}"] = torch.cuda.get_rng_state(index)
    return states


def _restore_rng(states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    for index in range(torch.cuda.device_count()):
        if f"cuda:{index}" in states:
            torch.cuda.set_rng_state(states[f"cuda:{index}"], index)


def _restore_weights(path: Path, trainer: Trainer) -> None:
    model = trainer.policy.model
    try:
        saved = weights_for(model, path)
    except LabError as error:
        raise LabError(
            f"the checkpoint {path} holds another network: {error}; use the recipe it was made with"
        ) from error
    model.load_state_dict(saved)


def _load_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(path)
