"""Where a policy learns, and in which arithmetic.

Invariant: on the CPU in float32 nothing here changes a bit or imports anything; elsewhere weights
that learn stay float32, and log-probabilities are taken in float32.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch

from cua_lab.errors import LabError
from cua_lab.policy.protocols import Network


@dataclass(frozen=True, slots=True)
class Precision:
    """Where and in which arithmetic a policy learns."""

    device: str
    """As torch names it: `cpu`, `cuda`, `cuda:1`."""
    bfloat16: bool

    @property
    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Products in bfloat16; log-probabilities stay float32."""
        if not self.bfloat16:
            return contextlib.nullcontext()
        return torch.autocast(self.device.partition(":")[0], dtype=torch.bfloat16)

    def stored(self, *, frozen: bool) -> str:
        """How weights are loaded: those that learn need float32."""
        return "bfloat16" if self.bfloat16 and frozen else "float32"


def precision_of(
    device: str, precision: str, *, section: str, index: int | None = None
) -> Precision:
    """What a recipe's `section` asks for, as far as this machine has it; `index`: which GPU.

    `auto` is the first GPU, else the CPU, and bfloat16 on a GPU that has it. Raises LabError where
    a GPU is asked for and torch finds none.
    """
    cuda = torch.cuda.is_available()
    if device == "cuda" and not cuda:
        raise LabError(
            f"{section}.device is cuda, but torch finds no GPU; set {section}.device=cpu"
        )
    place = "cuda" if cuda and device != "cpu" else "cpu"
    has_bfloat16 = place == "cuda" and torch.cuda.is_bf16_supported()
    bfloat16 = has_bfloat16 if precision == "auto" else precision == "bfloat16"
    return Precision(
        f"{place}:{index}" if place == "cuda" and index is not None else place, bfloat16
    )


def save_memory(model: Network) -> None:
    """Checkpoint activations; transformers 5.24 calls it by another name than 5.20.

    They are dropped only while the network is in `train` mode.
    """
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})  # re-entrant ones need inputs with a gradient
