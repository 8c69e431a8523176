"""Where, in which arithmetic and with which of its weights a policy learns.

Invariant: the defaults are those of a laptop: float32 on the CPU, every weight, one process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cua_lab.ranges import Count, Range


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Low-rank adapters, by `peft`."""

    r: Count = 16
    alpha: Count = 32
    """The update is scaled by alpha / r."""
    dropout: Annotated[float, Range(0, 0.9)] = 0.0
    targets: tuple[str, ...] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    """Names of linear layers."""
    vision: bool = False
    """Whether those of the vision tower are among them."""


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """What GRPO's updates run on; how many processes, `accelerate launch` says."""

    device: Literal["cpu", "cuda", "auto"] = "cpu"
    """`auto`: a GPU where torch finds one. The CPU gives the same bits on every run."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the products. What learns is kept in float32: a bfloat16 weight has 8 bits and swallows
    updates of 1e-5. With bfloat16 `grpo.logprob_gap_limit` needs about 0.2, and `grpo.tis_cap`."""
    gradient_checkpointing: bool = False
    """Forget activations and compute them again: a third slower, a fraction of the memory."""
    shard: bool = False
    """Split weights, gradients and AdamW's state over the processes (FSDP2) instead of holding all
    of them in each: needed where 16 bytes a weight do not fit one card, slower where they do."""
    lora: LoraSettings | None = None
    """Learn low-rank adapters alone. The engine gets a merged copy; nothing is merged in place."""

    def __post_init__(self) -> None:
        if self.lora is not None and self.shard:
            raise ValueError(
                "trainer.shard splits weights that learn; with trainer.lora each process holds the"
                " frozen ones in bfloat16 (2 bytes a weight): leave one of them out"
            )
        if self.lora is not None and self.lora.dropout:
            raise ValueError(
                f"trainer.lora.dropout is {self.lora.dropout}; the engine samples without dropout,"
                " so GRPO trains without it: set it to 0"
            )

    @property
    def plain(self) -> bool:
        """Whether the network that learns is the one that is served, as it is."""
        return self.lora is None and not self.shard
