"""TRL's losses on a batch of the bench, where TRL is installed: `pip install trl`, an extra.

The loss is TRL's own code, called on a model with TRL's fused head, without the data loading and
the logging of its trainers: what is left out would count against TRL. A trainer's `_compute_loss`
reads some fields of its trainer, which are set here to what its configuration would make of them.
"""

from __future__ import annotations

from collections import defaultdict
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from cua_lab.bench.peer_batch import Loss, PeerBatch


def installed() -> bool:
    """Whether TRL and what it imports are there."""
    return find_spec("trl") is not None and find_spec("datasets") is not None


def sft_losses() -> dict[str, Loss]:
    """TRL's cross-entropy, by its name; nothing where TRL is missing."""
    return {"TRL's SFT loss": _sft_loss} if installed() else {}


def grpo_losses() -> dict[str, Loss]:
    """TRL's clipped surrogate over all tokens of the batch ("dapo")."""
    return {"TRL's GRPO loss": _grpo_loss} if installed() else {}


def _fused(model: Any) -> Any:
    """The model with TRL's head, added once."""
    from trl.trainer.utils import add_fused_lm_head

    if not hasattr(model, "_bench_fused"):
        add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
        model._bench_fused = True
    return model


def _accelerator() -> Any:
    return SimpleNamespace(
        num_processes=1,
        is_main_process=False,
        gather=lambda x: x,
        reduce=lambda x, **_: x,
        gather_for_metrics=lambda x: x,
        parallelism_config=None,
        autocast=lambda: torch.autocast("cpu", enabled=False),
        sync_gradients=True,
    )


def _sft_loss(model: Any, batch: PeerBatch) -> Tensor:
    from trl import SFTTrainer

    labels = batch.inputs["input_ids"].masked_fill(~batch.trained, -100)
    trainer: Any = object.__new__(SFTTrainer)
    trainer.__dict__.update(
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(loss_type="nll", average_tokens_across_devices=False),
        accelerator=_accelerator(),
        aux_loss_enabled=False,
        compute_loss_func=None,
        label_smoother=None,
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    loss: Tensor = trainer.compute_loss(_fused(model), {**batch.inputs, "labels": labels})
    return loss


def _grpo_loss(model: Any, batch: PeerBatch) -> Tensor:
    from trl import GRPOTrainer

    first = int(batch.trained.any(dim=0).nonzero()[0])  # the first column with a sampled token
    ids, seen = batch.inputs["input_ids"], batch.inputs["attention_mask"]
    inputs = {
        "prompt_ids": ids[:, :first],
        "prompt_mask": seen[:, :first],
        "completion_ids": ids[:, first:],
        "completion_mask": seen[:, first:],
        "tool_mask": batch.trained[:, first:].long(),
        "advantages": batch.advantages,
        "num_items_in_batch": batch.trained.sum(),
        "num_images": [1] * len(ids),
        **{k: batch.inputs[k] for k in ("pixel_values", "image_grid_thw", "mm_token_type_ids")},
    }
    loss: Tensor = _trainer(GRPOTrainer)._compute_loss(_fused(model), inputs)
    return loss


def _trainer(kind: Any) -> Any:
    trainer: Any = object.__new__(kind)
    trainer.__dict__.update(
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(
            delta=None, steps_per_generation=1, use_bias_correction_kl=False, report_to=[]
        ),
        accelerator=_accelerator(),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level="token",
        beta=0.0,
        loss_type="dapo",
        epsilon_low=0.2,
        epsilon_high=0.28,
        use_vllm=False,
        _entropy_bonus_enabled=False,
        current_gradient_accumulation_steps=1,
        _metrics={"train": defaultdict(list)},
    )
    return trainer
