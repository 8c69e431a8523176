"""Who is told of every step, besides `metrics.jsonl`: TensorBoard, Weights & Biases.

A tracker takes numbers by name and step. Invariant: a key comes from a file named in the recipe and
goes into this process's environment, where the library reads it; it is in no recipe, log or record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from cua_lab.errors import LabError
from cua_lab.play.api_keys import load_key
from cua_lab.recipes.sft_recipe import TrackSettings, WandbSettings


class Tracker(Protocol):
    """Something that draws curves."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of one step."""

    def close(self) -> None:
        """Write what is left."""


class TensorBoard:
    """Event files, through torch's own writer."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            raise LabError("TensorBoard is missing: pip install 'cua-lab[sft]'") from error
        self._writer: Any = SummaryWriter(str(folder))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A run of Weights & Biases; going on with a training goes on with its run."""

    def __init__(self, settings: WandbSettings, folder: Path, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ModuleNotFoundError as error:
            raise LabError("track.wandb is set but wandb is missing: pip install wandb") from error
        if settings.mode == "online":
            load_key(settings.key_file, "WANDB_API_KEY")
        self._run: Any = wandb.init(
            project=settings.project,
            entity=settings.entity,
            name=folder.name,
            id=folder.name,
            dir=str(folder),
            mode=settings.mode,
            resume="allow",
            config=dict(config),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class Trackers:
    """All that a recipe asks for, as one."""

    def __init__(self, settings: TrackSettings, folder: Path, config: Mapping[str, Any]) -> None:
        self._all: list[Tracker] = []
        if settings.tensorboard:
            self._all.append(TensorBoard(folder / "tensorboard"))
        if settings.wandb is not None:
            self._all.append(Wandb(settings.wandb, folder, config))

    def log(self, step: int, values: Mapping[str, float | None]) -> None:
        """Numbers of one step; what was not measured is left out."""
        known = {k: v for k, v in values.items() if v is not None and math.isfinite(v)}
        for tracker in self._all:
            tracker.log(step, known)

    def close(self) -> None:
        for tracker in self._all:
            tracker.close()
