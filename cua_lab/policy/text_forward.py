"""Qwen3-VL's text model for training, written out: the states at chosen tokens, with gradients.

    ids, positions, image features ──▶ layers ──▶ states where a token is scored

The same parameters and the same arithmetic as the transformers module, in fewer passes over memory:
queries, keys and values are one product, norms and rotation are one autograd step each, what the
last layer does behind its attention it does only for the chosen tokens, which in an episode are a
quarter to a half, and tokens that rows have in common (`sharing`) are computed once. Invariant:
states and gradients are the module's to the last bits of float32.
Whatever is not a plain float32 Qwen3-VL on a CPU (adapters, autocast, shards, other families,
checkpointing) is left to the module: `writes_out` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from cua_lab.policy.model import ImageFeatures
    from cua_lab.policy.protocols import Network
    from cua_lab.policy.sharing import Shared


def writes_out(model: Network) -> bool:
    """Whether `states_at` knows this network."""
    text = model.model.language_model
    return (
        type(text).__name__ == "Qwen3VLTextModel"
        and model.device.type == "cpu"
        and model.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not getattr(text, "gradient_checkpointing", False)
        and all(_plain(layer) for layer in text.layers)
    )


def _plain(layer: Any) -> bool:
    attention, mlp = layer.self_attn, layer.mlp
    inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
    rest = (attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj)
    return all(
        type(part) is nn.Linear and type(part.weight) is nn.Parameter  # no shard of FSDP's
        for part in (*inputs, *rest)
    ) and all(part.bias is None for part in inputs)


def states_at(
    model: Network,
    ids: Tensor,
    positions: Tensor,
    state_mask: Tensor,
    images: ImageFeatures | None,
    shared: Shared,
    *,
    float64_attention: bool = False,
) -> Tensor:
    """The normed last states (N, H) of the tokens at `state_mask` (B, T) bool, row by row.

    `ids` (B, T) and `positions` (3, B, T) as transformers takes them; `images` has one entry for
    each image of the rows, in order. `float64_attention`: as the embedded engine computes it, which
    makes the states those that it sampled from; a step of 128 games costs a sixth more.
    """
    text = model.model.language_model
    first = torch.from_numpy(shared.first)  # (U,)
    rows = Rows(ids.shape[0], ids.shape[1], torch.from_numpy(shared.token).flatten(), first)
    distinct = ids.flatten()[first]
    x = text.embed_tokens(distinct)[None]  # (1, U, H)
    taps: Sequence[tuple[Tensor, ...]] = ()
    seen = feature = torch.empty(0, dtype=torch.long)
    if images is not None:
        pads = (ids == model.config.image_token_id).flatten()
        seen = (distinct == model.config.image_token_id).nonzero()[:, 0]
        feature = pads.cumsum(0)[first[seen]] - 1  # of all image tokens of the rows, which one
        x = x[0].index_copy(0, seen, torch.cat(images.tokens)[feature])[None]
        taps = images.deepstack
    turn = _turns(text, x, positions.flatten(1)[:, first][:, None])
    for index, layer in enumerate(text.layers):
        last = index == len(text.layers) - 1 and index >= len(taps)
        x = _layer(layer, x, turn, rows, state_mask if last else None, float64_attention)
        if index < len(taps):
            x = x[0].index_add(0, seen, torch.cat(taps[index])[feature])[None]
    chosen = x if x.dim() == 2 else x[0][rows.token[state_mask.flatten()]]
    return rms_norm(chosen, text.norm.weight, text.norm.variance_epsilon)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """From distinct tokens to the rows they stand in, and back."""

    count: int
    length: int
    token: Tensor
    """(B * T,): which distinct token stands there."""
    first: Tensor
    """(U,): where each distinct token stands first."""

    def laid_out(self, x: Tensor) -> Tensor:
        """(1, U, heads, D) to (B, heads, T, D)."""
        # An embedding is a gather at a quarter of index_select's time.
        rows = F.embedding(self.token, x[0].flatten(1))
        return rows.view(self.count, self.length, *x.shape[2:]).transpose(1, 2)


def _turns(text: Any, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """`cos` and `sin` (B, T, 1, D), `sin` signed so that half a turn is a plain roll."""
    cos, sin = text.rotary_emb(x, positions)
    half = sin.shape[-1] // 2
    return cos[:, :, None], torch.cat((-sin[..., :half], sin[..., half:]), -1)[:, :, None]


def _layer(
    layer: Any,
    x: Tensor,
    turn: tuple[Tensor, Tensor],
    rows: Rows,
    state_mask: Tensor | None,
    float64_attention: bool,
) -> Tensor:
    """One layer, (1, U, H) to the same, or to (N, H) at `state_mask` (B, T)."""
    attention, mlp = layer.self_attn, layer.mlp
    h = rms_norm(x, layer.input_layernorm.weight, layer.input_layernorm.variance_epsilon)
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    qkv = F.linear(h, torch.cat([part.weight for part in parts]))
    qkv = qkv.view(1, x.shape[1], -1, attention.head_dim)
    heads = attention.q_proj.out_features // attention.head_dim
    keys = attention.k_proj.out_features // attention.head_dim
    norms = (attention.q_norm.weight.expand(heads, -1), attention.k_norm.weight.expand(keys, -1))
    qk = rms_norm(qkv[:, :, : heads + keys], torch.cat(norms), attention.q_norm.variance_epsilon)
    qk = rows.laid_out(rotate(qk, *turn))
    values = rows.laid_out(qkv[:, :, heads + keys :])
    if float64_attention:
        qk, values = qk.double(), values.double()
    mixed = F.scaled_dot_product_attention(
        qk[:, :heads],
        qk[:, heads:],
        values,
        is_causal=True,
        scale=attention.scaling,
        enable_gqa=heads != keys,
    )
    mixed = mixed.to(x.dtype).transpose(1, 2).flatten(2).flatten(0, 1)  # (B * T, heads * D)
    if state_mask is None:
        mixed = mixed[rows.first][None]
    else:
        mixed, x = mixed[state_mask.flatten()], x[0][rows.token[state_mask.flatten()]]
    x = x + attention.o_proj(mixed)
    h = rms_norm(
        x, layer.post_attention_layernorm.weight, layer.post_attention_layernorm.variance_epsilon
    )
    done: Tensor = x + mlp.down_proj(mlp.act_fn(mlp.gate_proj(h)) * mlp.up_proj(h))
    return done


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x` (..., H) over its root mean square, times `weight` (H,) or (heads, H)."""
    normed: Tensor = _RmsNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    return normed


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions for `x` (B, T, heads, D), with `sin` signed as by `_turns`."""
    turned: Tensor = _Rotate.apply(x, cos, sin)  # type: ignore[no-untyped-call]
    return turned


class _RmsNorm(torch.autograd.Function):
    """Half of the passes over memory that autograd makes of the written-out formula."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        unit = x * scale
        ctx.save_for_backward(unit, scale, weight)
        return unit * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        unit, scale, weight = ctx.saved_tensors
        along = grad * unit
        to_weight = None
        if ctx.needs_input_grad[1]:
            to_weight = along.flatten(0, -1 - weight.dim()).sum(0)
        mean = (along * weight).sum(-1, keepdim=True).div_(-unit.shape[-1])
        return torch.addcmul(grad * weight, unit, mean).mul_(scale), to_weight, None


class _Rotate(torch.autograd.Function):
    """Backwards it is a turn by the opposite angle."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return (grad * cos).add_((grad * sin).roll(grad.shape[-1] // 2, -1)), None, None
