"""Checkpoints of a training run: whole or not there.

    <root>/step-000010/              a plain Hugging Face folder, which any engine loads; or an
                                     adapter alone, where only an adapter learns
    <root>/step-000010/training/     optimizer.safetensors, rng.safetensors, state.json

Invariants: a checkpoint is written beside its place, flushed to disk and renamed into it, and
`state.json` lists every file with size and digest, so that a torn one is never picked up; nothing
is pickled; going on from a checkpoint gives the same bits as never having stopped.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from cua_lab import files
from cua_lab.errors import LabError
from cua_lab.policy.weights import weights_for
from cua_lab.training.learner import put, whole

if TYPE_CHECKING:
    from cua_lab.policy.policy import Policy

STATE = "training/state.json"
NAME = re.compile(r"step-(\d{6,})")


class Trainer(Protocol):
    """A trainer of a policy: by GRPO or by SFT."""

    policy: Policy
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
    beside: Callable[[Path], object] | None = None,
) -> Path:
    """Write the trainer's state after its current step; keep the last `keep` checkpoints.

    `extra` is the caller's own JSON, given back by `load_checkpoint`. `weights`: what learns, where
    it is not the whole policy; the same is given to `load_checkpoint`. `beside` writes what else
    belongs into the folder, before it has its name.
    """
    target = root / f"step-{trainer.state.step:06d}"
    with files.writing_folder(target) as folder:
        _write(folder, trainer, dict(extra or {}), weights, beside)
    prune_checkpoints(root, keep)
    return target


def latest_checkpoint(root: Path) -> Path | None:
    """The newest checkpoint whose files are all there as they were written; `None` without one."""
    for path in reversed(_all(root)):
        if not corruption_of(path):
            return path
    return None


def checkpoint_extra(path: Path) -> dict[str, Any]:
    """What `save_checkpoint` was given as `extra`, without loading anything else."""
    extra: dict[str, Any] = json.loads((path / STATE).read_text(encoding="utf-8"))["extra"]
    return extra


def prune_checkpoints(root: Path, keep: int) -> None:
    """Remove all but the last `keep`, and whatever was left half written."""
    for path in _all(root)[: -max(1, keep)]:
        files.remove_folder(path)
    files.remove_partials(root)


def remove_checkpoints(root: Path, *, after: int = -1) -> None:
    """Remove those of later steps than `after`, and whatever was left half written."""
    for path in _all(root):
        if _step(path) > after:
            files.remove_folder(path)
    files.remove_partials(root)


def corruption_of(path: Path) -> str | None:
    """What is wrong with a checkpoint, in words; `None` when it is whole."""
    try:
        listed = json.loads((path / STATE).read_text(encoding="utf-8"))["files"]
        return files.mismatch(path, listed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{STATE} cannot be read ({error})"


def load_checkpoint(
    path: Path, trainer: Trainer, *, weights: Weights | None = None
) -> dict[str, Any]:
    """Restore weights (in place: the engine shares them), optimizer, RNG and counters.

    Returns what `save_checkpoint` was given as `extra`. An engine that serves them must be told.
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
    extra: dict[str, Any] = state["extra"]
    return extra


def _all(root: Path) -> list[Path]:
    """All that are under their name, the oldest first."""
    if not root.is_dir():
        return []
    found = [path for path in root.iterdir() if NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=_step)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _write(
    folder: Path,
    trainer: Trainer,
    extra: dict[str, Any],
    weights: Weights | None,
    beside: Callable[[Path], object] | None,
) -> None:
    from safetensors.torch import save_file

    (weights or trainer.policy).save(folder)
    if beside is not None:
        beside(folder)
    (folder / "training").mkdir(exist_ok=True)
    save_file(_optimizer_tensors(trainer), folder / "training/optimizer.safetensors")
    save_file(_rng_tensors(), folder / "training/rng.safetensors")
    state = {
        "trainer": dataclasses.asdict(trainer.state),
        "extra": extra,
        "files": files.digests(folder),
    }
    text = json.dumps(state, indent=1, allow_nan=False) + "\n"
    (folder / STATE).write_text(text, encoding="utf-8")


def _named(trainer: Trainer) -> dict[str, Tensor]:
    return {n: p for n, p in trainer.policy.model.named_parameters() if p.requires_grad}


def _optimizer_tensors(trainer: Trainer) -> dict[str, Tensor]:
    """AdamW's state as `<quantity>/<parameter>`; empty before the first update."""
    return {
        f"{quantity}/{name}": whole(value.detach()).contiguous()
        for name, parameter in _named(trainer).items()
        for quantity, value in trainer.optimizer.state.get(parameter, {}).items()
    }


def _restore_optimizer(tensors: dict[str, Tensor], trainer: Trainer) -> None:
    named = _named(trainer)
    trainer.optimizer.state.clear()
    for key, value in tensors.items():
        quantity, _, name = key.partition("/")
        if name not in named:
            raise LabError(
                f"the checkpoint's optimizer knows {name!r}, that the policy does not have"
            )
        trainer.optimizer.state[named[name]][quantity] = _like(named[name], quantity, value)


def _like(parameter: Tensor, quantity: str, value: Tensor) -> Tensor:
    """An optimizer's value where its parameter is: split as it is, or whole."""
    if quantity == "step":
        return value.to(parameter.device)
    own = torch.empty_like(parameter)
    put(own, value)
    return own


def collect(trainer: Any) -> None:
    """On a rank that writes nothing: take part in putting split weights and states together, in
    the order in which `save_checkpoint` does."""
    for _ in trainer.learner.plain():
        pass
    _optimizer_tensors(trainer)


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
