"""What Miles' FSDP trainer is told of one sample beside its tokens: pixels, grids, positions.

    Sample ──▶ {pixel_values, image_grid_thw, position_ids}

Miles numbers the tokens of every model 0, 1, 2, ... and gives that as `position_ids`; then it
updates the model's arguments with these inputs, name by name, each joined along its first axis over
the samples of a micro-batch (miles 31f1ca9, `training_utils/data.py` and `fsdp_utils/actor.py`).
Qwen-VL rotates by three axes: with Miles' numbers trainer and engine differ by up to .37 a token on
the embedded screen and .97 on a browser; with `position_ids` among these inputs, by 2e-6.

Invariant: positions are given where Miles takes them, one sample a micro-batch under FSDP, and
refused where it would join them wrongly; never left out in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cua_lab.errors import LabError
from cua_lab.policy.positions import mrope_positions
from cua_lab.stitching.sample import Sample


@dataclass(frozen=True, slots=True)
class Positions:
    """Makes `position_ids` of a sample, as wide as Miles pads its tokens."""

    image_token_id: int
    merge: int
    multiple: int
    """Miles' --data-pad-size-multiplier: tokens are padded to a multiple of it."""

    def __call__(self, sample: Sample) -> np.ndarray:
        """int64 (3, 1, T padded); the padding, which no token looks at, stands at 0."""
        tokens = sample.stitched.tokens
        width = -(-len(tokens) // self.multiple) * self.multiple
        padded = np.zeros((3, 1, width), dtype=np.int64)
        padded[:, 0, : len(tokens)] = mrope_positions(
            tokens, sample.image_grid_thw, image_token_id=self.image_token_id, merge=self.merge
        )
        return padded


def positions_for(args: Any, *, image_token_id: int | None, merge: int) -> Positions | None:
    """How Miles' `args` want positions; `None` under Megatron, whose models make their own.

    Raises `LabError` where several samples would share a micro-batch.
    """
    if args.train_backend != "fsdp":
        return None
    if args.use_dynamic_batch_size or args.micro_batch_size != 1:
        asked = (
            "--use-dynamic-batch-size"
            if args.use_dynamic_batch_size
            else f"--micro-batch-size {args.micro_batch_size}"
        )
        raise LabError(
            f"{asked}: Miles' FSDP trainer joins the positions of several samples along the wrong"
            " axis, and without them it places images on a line, up to .97 away from the engine's"
            " log-probabilities; train with --micro-batch-size 1"
        )
    if image_token_id is None:
        raise LabError(
            f"{args.hf_checkpoint}: the tokenizer has no <|image_pad|>; is it a Qwen-VL?"
        )
    return Positions(image_token_id, merge, args.data_pad_size_multiplier)


def train_inputs(sample: Sample, positions: Positions | None) -> dict[str, Any]:
    """Tensors by the name of the model's argument: pixel_values float32 (n_patches, patch_dim),
    image_grid_thw int64 (n_images, 3) and, where Miles takes them, position_ids."""
    import torch  # heavy, and a reader of the recipe needs none

    inputs = {
        "pixel_values": torch.tensor(sample.pixel_values, dtype=torch.float32),
        "image_grid_thw": torch.tensor(sample.image_grid_thw, dtype=torch.int64),
    }
    if positions is not None:
        inputs["position_ids"] = torch.from_numpy(positions(sample))
    return inputs
