"""The network: transformers' own Qwen-VL classes, small configurations, and fast CPU layers.

A model is `Qwen3VLForConditionalGeneration` (or Qwen2.5-VL's, when such a checkpoint is loaded).
Invariant: `speed_up` changes no parameter name and no value, so a checkpoint stays plain
Hugging Face, and no result beyond the last bits of float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from cua_lab.policy.protocols import Network, Tokenizer
from cua_lab.policy.shape import Shape

EQUAL = "_cua_lab_equal_lengths"

SHAPES = {
    "smoke": Shape(hidden=64, layers=2, vision_hidden=32),
    "click": Shape(hidden=96, layers=3, vision_hidden=64),
    "game": Shape(hidden=128, layers=3, vision_hidden=96),
}


def build_model(shape: Shape, tokenizer: Tokenizer, *, seed: int) -> Network:
    """A randomly initialised Qwen3-VL for `tokenizer`'s vocabulary, float32, ready to train."""
    from transformers import Qwen3VLForConditionalGeneration

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(_config(shape, tokenizer))
        _initialise(model, shape)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return speed_up(cast("Network", model))


def _config(shape: Shape, tokenizer: Tokenizer) -> Any:  # Qwen3VLConfig
    from transformers import Qwen3VLConfig

    head_dim = shape.hidden // shape.heads
    ids = tokenizer.convert_tokens_to_ids
    return Qwen3VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": shape.hidden,
            "intermediate_size": shape.mlp_ratio * shape.hidden,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads,
            "head_dim": head_dim,
            "max_position_embeddings": 4096,
            "initializer_range": shape.init_std,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": shape.rope_theta,
                "mrope_section": _mrope_section(head_dim // 2),
                "mrope_interleaved": True,
            },
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": None,
            "tie_word_embeddings": False,
        },
        vision_config={
            "depth": shape.vision_depth,
            "hidden_size": shape.vision_hidden,
            "intermediate_size": shape.mlp_ratio * shape.vision_hidden,
            "num_heads": 4,
            "out_hidden_size": shape.hidden,
            "num_position_embeddings": shape.grid_side**2,
            "deepstack_visual_indexes": list(shape.deepstack),
            "initializer_range": shape.init_std,
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=False,
    )


def _mrope_section(pairs: int) -> list[int]:
    """Rotary pairs of time, height and width; time takes what does not divide by three."""
    third = pairs // 3
    return [pairs - 2 * third, third, third]


def _initialise(model: nn.Module, shape: Shape) -> None:
    visual = model.model.visual  # type: ignore[union-attr]
    nn.init.normal_(visual.patch_embed.proj.weight, std=shape.patch_std)  # type: ignore[union-attr,arg-type]
    nn.init.normal_(visual.pos_embed.weight, std=shape.position_std)  # type: ignore[union-attr,arg-type]


def speed_up(model: Network) -> Network:
    """Swap two slow vision layers, in place, for faster ones with the same parameters."""
    for module in model.modules():
        if type(module).__name__.endswith("VisionPatchEmbed"):
            module.__class__ = _subclass(type(module), LinearPatchEmbed)
        elif type(module).__name__.endswith("VLVisionAttention"):
            module.__class__ = _subclass(type(module), BatchedVisionAttention)
    return model


def _subclass(base: type, mixin: type) -> type:
    return type(base.__name__, (mixin, base), {})


class LinearPatchEmbed:
    """The patch convolution as the matrix product it is: Conv3d is 10x slower on CPU."""

    proj: nn.Conv3d

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:  # (n_patches, patch_dim)
        weight = self.proj.weight
        return F.linear(hidden_states.to(weight.dtype), weight.flatten(1), self.proj.bias)


class BatchedVisionAttention:
    """Images of one size attend in one call; the original loops over them in Python."""

    qkv: nn.Linear
    proj: nn.Linear
    num_heads: int
    scaling: float

    def forward(
        self,
        hidden_states: torch.Tensor,  # (n_patches, D)
        cu_seqlens: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        count, length = _equal_lengths(cu_seqlens)
        if position_embeddings is None or not length:
            whole: torch.Tensor = super().forward(  # type: ignore[misc]
                hidden_states, cu_seqlens, position_embeddings=position_embeddings, **kwargs
            )
            return whole
        qkv = self.qkv(hidden_states).view(count, length, 3, self.num_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (images, heads, patches, head_dim)
        cos, sin = (part.view(count, 1, length, -1) for part in position_embeddings)
        # The angles are float32, which a bfloat16 tower must not become.
        q, k = ((x * cos + _rotate_half(x) * sin).to(v.dtype) for x in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, scale=self.scaling)
        out: torch.Tensor = self.proj(mixed.transpose(1, 2).reshape(count * length, -1))
        return out


def _equal_lengths(cu_seqlens: torch.Tensor) -> tuple[int, int]:
    """How many images, and the patches of each: 0 where they differ.

    Kept on the tensor, which all blocks of a tower are given: on a GPU reading it waits for all
    that was asked before.
    """
    known: tuple[int, int] | None = getattr(cu_seqlens, EQUAL, None)
    if known is None:
        lengths = cu_seqlens.diff().tolist()
        known = len(lengths), lengths[0] if len(set(lengths)) == 1 else 0
        setattr(cu_seqlens, EQUAL, known)
    return known


def _rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


@dataclass(frozen=True, slots=True)
class ImageFeatures:
    """What the vision tower makes of images; every tuple has one entry per image."""

    tokens: tuple[torch.Tensor, ...]
    """(n_tokens, H) each."""
    deepstack: tuple[tuple[torch.Tensor, ...], ...]
    """Per tapped vision block, (n_tokens, H) per image; empty for Qwen2.5-VL."""

    def select(self, indices: Sequence[int]) -> ImageFeatures:
        """Images by index, repeats allowed: a group's common screenshot is encoded once."""
        taps = tuple(tuple(tap[i] for i in indices) for tap in self.deepstack)
        return ImageFeatures(tuple(self.tokens[i] for i in indices), taps)

    def for_model(self) -> dict[str, Any]:
        """The `mm_encoder_outputs` argument of transformers' forward."""
        from transformers.models.qwen3_vl.modeling_qwen3_vl import (
            BaseModelOutputWithDeepstackFeatures,
        )

        output: Any = BaseModelOutputWithDeepstackFeatures()
        output["pooler_output"] = self.tokens
        output["deepstack_features"] = [list(tap) for tap in self.deepstack]
        return {"image": output}


def encode_images(model: Network, pixels: torch.Tensor, grids: torch.Tensor) -> ImageFeatures:
    """Run the vision tower on pixels (n_patches, patch_dim) of grids (n_images, 3)."""
    output = model.model.get_image_features(pixels, grids, return_dict=True)
    deepstack = getattr(output, "deepstack_features", None) or []
    return ImageFeatures(tuple(output.pooler_output), tuple(tuple(tap) for tap in deepstack))
