"""The text decoder of a Qwen-VL, written out over the real module's weights.

Keys and values of a batch live in one buffer, `KV`, whose row b holds its tokens in its first
`lengths[b]` columns. A prompt is prefilled without padding, packed with the others, each row
attending to its own columns; a decode step adds one column to every row.

Invariants. The log-probabilities equal those of the transformers module on the whole sequence (the
tests compare them); the module itself is never called for text, because on a small policy its
Python costs more than its arithmetic. And a token's result does not depend on the rest of the
batch, nor on how much of its row was cached: sums are kept in one order by giving every matrix
product at least `MIN_ROWS` rows, and every attention multiples of that and of `COLUMN_STEP`
columns. With MKL on x86 that makes it the same to the last bit; plain calls differ by 3e-6, and
on processors without MKL so do these: 1e-5 is the tolerance there.

On a CPU attention itself runs in float64 where the weights are float32: its sums, which are cut
another way for one token than for a whole sequence, then round to the same float32, and so training
(`policy.text_forward`) finds the very log-probabilities that were sampled by. Keys and values lie
in float64 while a batch runs: converting them at every step would cost more than the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cua_lab.policy.protocols import Network
from cua_lab.policy.weights import refuse_adapters

# Above this size a fused copy of the projections costs more memory than it saves in calls.
FUSE_BELOW_BYTES = 64 * 2**20
ROOM_KEPT_BYTES = 256 * 2**20
"""A batch's buffer of keys and values that is larger does not outlive the batch."""


def least_rows() -> int:
    """Rows from which on a matrix product sums in one order, however many rows it has.

    Below it is another routine. Measured over 2 to 700 rows of 32 to 2048 terms: 4 rows with MKL's
    AVX2 routines, 16 with its AVX-512 ones, which it takes on Intel's processors only.
    """
    generator = torch.Generator().manual_seed(0)
    rows, weight = (torch.randn(64, 1024, generator=generator) for _ in range(2))
    whole = F.linear(rows, weight)
    for count in (4, 8, 16):
        if all(torch.equal(F.linear(rows[:n], weight), whole[:n]) for n in range(count, 64)):
            return count
    return 16


MIN_ROWS = least_rows()
"""Every matrix product is given at least these."""
COLUMN_STEP = 16
MIN_COLUMNS = 64
"""Attention sees a multiple of `COLUMN_STEP` columns and at least these (torch takes products of
fewer than 400 terms another way); those beyond a row's end are masked."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What of the configuration the arithmetic needs."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float

    @property
    def groups(self) -> int:
        """Query heads per key/value head."""
        return self.heads // self.kv_heads


@dataclass(slots=True)
class KV:
    """Keys and values of a batch: `data` is (2, layers, B, kv_heads, columns, head_dim)."""

    data: Tensor
    lengths: list[int]
    """Tokens in each row; what lies behind them is finite and means nothing."""
    kept: torch.dtype = torch.float32
    """Of a copy that outlives the batch: `data` may be wider than what it was computed as."""

    @property
    def columns(self) -> int:
        """Room in every row, a multiple of `COLUMN_STEP`."""
        return self.data.shape[4]

    def row(self, index: int) -> Tensor:
        """A copy of one row's tokens: (2, layers, kv_heads, tokens, head_dim)."""
        return self.data[:, :, index, :, : self.lengths[index]].to(self.kept, copy=True)

    def copy_row(self, source: int, target: int) -> None:
        """Give `target` the tokens of `source`."""
        self.lengths[target] = self.lengths[source]
        part = self.data[:, :, :, :, : self.lengths[source]]
        part[:, :, target] = part[:, :, source]

    def narrow(self, rows: int) -> None:
        """Forget all rows from `rows` on; nothing is copied."""
        self.data = self.data[:, :, :rows]
        del self.lengths[rows:]

    def grow(self, more: int) -> None:
        """Room for at least `more` columns."""
        room = self.data.new_zeros((*self.data.shape[:4], _rounded(more), self.data.shape[5]))
        self.data = torch.cat([self.data, room], dim=4)


@dataclass(frozen=True, slots=True)
class Span:
    """The new tokens of one row in a packed prefill: `first:last` of the pack, after `cached`."""

    row: int
    first: int
    last: int
    cached: int


Linear = tuple[Tensor, Tensor | None]
"""Weight and bias."""


@dataclass(slots=True)
class _Layer:
    qkv: list[Linear]
    qk_norm: Tensor | None  # (heads + kv_heads, head_dim)
    out: Linear
    gate_up: list[Linear]
    down: Linear
    norm_in: Tensor
    norm_mlp: Tensor


class Decoder:
    """Prefill and decode with the weights of `model` (Qwen3-VL or Qwen2.5-VL)."""

    def __init__(self, model: Network) -> None:
        self._model = model
        self.text = model.model.language_model
        self.head = model.lm_head
        config = model.config.text_config
        head_dim = getattr(config, "head_dim", None)
        self.shape = Shape(
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=head_dim or config.hidden_size // config.num_attention_heads,
            eps=config.rms_norm_eps,
        )
        self._act = self.text.layers[0].mlp.act_fn
        self._layers: list[_Layer] = []
        self._read: list[tuple[int, int, float]] = []
        self._table = torch.empty(0, 0)
        self._room = torch.empty(0)
        self._axis = self._find_axes()
        self.refresh()

    # -- weights -----------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.head.weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The type everything is computed in."""
        dtype: torch.dtype = self.head.weight.dtype
        return dtype

    @property
    def attention_dtype(self) -> torch.dtype:
        """What attention is computed in."""
        wider = self.dtype == torch.float32 and self.device.type == "cpu"
        return torch.float64 if wider else self.dtype

    def stale(self) -> bool:
        """Whether somebody changed a weight since `refresh`."""
        return self._read != self._stamps()

    def refresh(self) -> None:
        """Take the weights as they are now (fused copies of them where they are small).

        Weights are read by name, past any adapter: an adapter that is not merged is refused.
        """
        refuse_adapters(self._model, "samples from the policy")
        text = self.text
        fuse = sum(p.numel() * p.element_size() for p in text.parameters()) < FUSE_BELOW_BYTES
        with torch.inference_mode():
            self._layers = [_layer(layer, self.shape, fuse) for layer in text.layers]
        self._read = self._stamps()
        self.forget_room()

    def _stamps(self) -> list[tuple[int, int, float]]:
        """Version counters, and sums: torch's fused optimizers do not count their changes.

        Of large matrices a sample is summed: an optimizer's step changes every matrix somewhere.
        """
        with torch.inference_mode():
            return [
                (p.data_ptr(), p._version, float(p.flatten()[:: -(-p.numel() // 4096)].sum()))
                for p in self._model.parameters()
            ]

    # -- positions ---------------------------------------------------------------------------

    def angles(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Rotary `cos` and signed `sin`, each (N, head_dim), for (3, N) positions.

        From a table by position: each dimension follows one of the three axes.
        """
        top = int(position_ids.max()) + 1
        if self._table.shape[1] < top:
            self._table = self._make_table(max(512, 1 << (top - 1).bit_length()))
        dims = torch.arange(self.shape.head_dim, device=self.device)
        cos, sin = self._table[:, position_ids[self._axis].T, dims]
        return cos, sin

    def _text_angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The same for text, where the three positions are one."""
        if self._table.shape[1] <= (top := int(positions.max())):
            self._table = self._make_table(1 << top.bit_length())
        cos, sin = self._table[:, positions]
        return cos, sin

    def _make_table(self, count: int) -> Tensor:
        """(2, count, head_dim): `cos`, and `sin` signed so that rotate_half is a plain roll."""
        steps = torch.arange(count, device=self.device)
        cos, sin = self.text.rotary_emb(self.head.weight, steps.expand(3, 1, -1))
        table = torch.cat([cos, sin])
        table[1, :, : self.shape.head_dim // 2].neg_()
        return table

    def _find_axes(self) -> Tensor:
        """(head_dim,): which of time, height and width turns each dimension, asked of the module.

        Its layout differs between Qwen2.5-VL (blocks) and Qwen3-VL (interleaved).
        """
        probes = torch.eye(3, dtype=torch.long, device=self.device)[:, None]  # (3, 1, 3)
        _, sin = self.text.rotary_emb(self.head.weight, probes)
        axes: Tensor = sin[0].abs().argmax(0)
        return axes

    # -- forward -----------------------------------------------------------------------------

    def new_kv(self, lengths: Sequence[int], room: int) -> KV:
        """A buffer for rows that will hold `lengths` prompt tokens and `room` more each.

        It lies where the last one lay, if it fits there: of two buffers only the newer is valid.
        """
        s = self.shape
        columns = _rounded(max(lengths) + room)
        shape = (2, s.layers, len(lengths), s.kv_heads, columns, s.head_dim)
        # Fresh pages took 70 of a turn's 260 ms, for 16 rows of 1400 tokens.
        if self._room.numel() < (size := math.prod(shape)):
            self._room = torch.empty(0)  # the old one goes before the new one comes
            # Zeros, because a masked column still takes part: 0 * NaN would be NaN.
            self._room = torch.zeros(size, device=self.device, dtype=self.attention_dtype)
        data = self._room[:size].view(shape)
        if size * data.element_size() > ROOM_KEPT_BYTES:
            self.forget_room()
        return KV(data, list(lengths), self.dtype)

    def forget_room(self) -> None:
        """Give the buffer's memory back, and what it holds: NaN of bad weights would stay in it."""
        self._room = torch.empty(0)

    def prefill(
        self,
        embeds: Tensor,
        position_ids: Tensor,
        spans: Sequence[Span],
        kv: KV,
        *,
        visual: Tensor | None = None,
        deepstack: Sequence[Tensor] = (),
    ) -> Tensor:
        """Final hidden states (N, hidden) of packed new tokens, whose KV is written.

        `embeds` is (N, hidden) with image features in place, `position_ids` (3, N); `visual` holds
        the pack's image positions and `deepstack` the features to add there, one per early layer.
        """
        cos, sin = self.angles(position_ids)
        masks = [self._causal(span) for span in spans]
        x = embeds
        for index, layer in enumerate(self._layers):
            q, k, v = self._project(layer, x, cos[:, None], sin[:, None])  # (N, heads, D)
            attended = torch.empty_like(q)
            for span, mask in zip(spans, masks, strict=True):
                part = slice(span.first, span.last)
                attended[part] = self._attend_row(kv, index, span, mask, q[part], k[part], v[part])
            x = self._finish(layer, x, attended.flatten(1))
            if index < len(deepstack) and visual is not None:
                x = x.index_add(0, visual, deepstack[index])
        return x

    def _causal(self, span: Span) -> Tensor:
        """The additive mask (rows, columns) of one row's new tokens, the same in every layer."""
        new = span.last - span.first
        last = torch.arange(span.cached, span.cached + new + -new % MIN_ROWS, device=self.device)
        columns = torch.arange(_rounded(span.cached + new), device=self.device)
        mask = torch.zeros(len(last), len(columns), device=self.device, dtype=self.attention_dtype)
        return mask.masked_fill_(columns > last[:, None], -torch.inf)

    def _attend_row(
        self, kv: KV, index: int, span: Span, mask: Tensor, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        """Write one row's new keys and values, then attend causally: (new, heads, D)."""
        new = span.last - span.first
        total = span.cached + new
        keys, values = kv.data[:, index, span.row, :, : _rounded(total)]  # (kv_heads, T, D)
        keys[:, span.cached : total] = k.transpose(0, 1)
        values[:, span.cached : total] = v.transpose(0, 1)
        q = F.pad(q.to(keys.dtype), (0, 0, 0, 0, 0, -new % MIN_ROWS))
        out = F.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            keys[None],
            values[None],
            attn_mask=mask,
            enable_gqa=self.shape.groups > 1,
        )
        return out[0].transpose(0, 1)[:new]

    def step(self, ids: Tensor, positions: Tensor, kv: KV, mask: Tensor) -> Tensor:
        """Logits (B, V) after one more token per row: (B,) ids at (B,) positions.

        `mask` is what `mask(kv)` made; the new column is opened in it.
        """
        s, rows = self.shape, ids.shape[0]
        row = torch.arange(rows, device=self.device)
        column = torch.tensor(kv.lengths, device=self.device)
        kv.lengths = [length + 1 for length in kv.lengths]
        total = _rounded(max(kv.lengths))
        mask.view(rows, s.kv_heads, -1)[row, :, column] = 0.0
        cos, sin = self._text_angles(positions)
        cos, sin = cos[:, None], sin[:, None]
        x = self.text.embed_tokens.weight[ids]
        for index, layer in enumerate(self._layers):
            q, k, v = self._project(layer, x, cos, sin)
            kv.data[0, index][row, :, column] = k.to(kv.data.dtype)
            kv.data[1, index][row, :, column] = v.to(kv.data.dtype)
            keys, values = kv.data[:, index, :, :, :total].flatten(1, 2)  # (B * kv_heads, T, D)
            q = q.reshape(rows * s.kv_heads, s.groups, s.head_dim).to(keys.dtype)
            scores = torch.baddbmm(
                mask[:, :, :total], q, keys.transpose(1, 2), alpha=s.head_dim**-0.5
            )
            attended = torch.bmm(scores.softmax(-1), values)  # (B * kv_heads, groups, D)
            x = self._finish(layer, x, attended.reshape(rows, -1).to(x.dtype))
        return self.logits(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and output head."""
        normed = self._norm(hidden, self.text.norm.weight)
        return _linear(normed, [(self.head.weight, self.head.bias)])

    def mask(self, kv: KV) -> Tensor:
        """The additive mask of a batch, (B * kv_heads, 1, columns): -inf behind a row's end."""
        columns = torch.arange(kv.columns, device=self.device)
        lengths = torch.tensor(kv.lengths, device=self.device)[:, None]
        mask = torch.zeros(len(kv.lengths), kv.columns, device=self.device, dtype=kv.data.dtype)
        mask.masked_fill_(columns >= lengths, -torch.inf)
        return mask.repeat_interleave(self.shape.kv_heads, 0)[:, None]

    def _project(
        self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values, each (N, its heads, D)."""
        s = self.shape
        h = self._norm(x, layer.norm_in)
        qkv = _linear(h, layer.qkv).view(x.shape[0], -1, s.head_dim)
        turned = s.heads + s.kv_heads
        qk = qkv[:, :turned]
        if layer.qk_norm is not None:
            qk = self._norm(qk, None) * layer.qk_norm
        qk = torch.addcmul(qk * cos, qk.roll(s.head_dim // 2, -1), sin)
        return qk[:, : s.heads], qk[:, s.heads :], qkv[:, turned:]

    def _finish(self, layer: _Layer, x: Tensor, attended: Tensor) -> Tensor:
        """Output projection, then the MLP, both residual."""
        x = x + _linear(attended, [layer.out])
        gate, up = _linear(self._norm(x, layer.norm_mlp), layer.gate_up).chunk(2, -1)
        return x + _linear(self._act(gate) * up, [layer.down])

    def _norm(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return F.rms_norm(x, list(x.shape[-1:]), weight, self.shape.eps)


def _linear(x: Tensor, parts: list[Linear]) -> Tensor:
    """Affine maps of (N, in), their outputs side by side."""
    rows, x = x.shape[0], _padded(x)
    outs = [F.linear(x, weight, bias)[:rows] for weight, bias in parts]
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=-1)


def _padded(x: Tensor) -> Tensor:
    """(N, in) with rows of zeros up to `MIN_ROWS`."""
    missing = MIN_ROWS - x.shape[0]
    return F.pad(x, (0, 0, 0, missing)) if missing > 0 else x


def _rounded(columns: int) -> int:
    return max(MIN_COLUMNS, -(-columns // COLUMN_STEP) * COLUMN_STEP)


def _layer(layer: Any, shape: Shape, fuse: bool) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    norm = None
    if hasattr(attention, "q_norm"):
        norm = torch.cat(
            [
                attention.q_norm.weight.expand(shape.heads, -1),
                attention.k_norm.weight.expand(shape.kv_heads, -1),
            ]
        )
    return _Layer(
        qkv=_parts([attention.q_proj, attention.k_proj, attention.v_proj], fuse),
        qk_norm=norm,
        out=(attention.o_proj.weight, attention.o_proj.bias),
        gate_up=_parts([mlp.gate_proj, mlp.up_proj], fuse),
        down=(mlp.down_proj.weight, mlp.down_proj.bias),
        norm_in=layer.input_layernorm.weight,
        norm_mlp=layer.post_attention_layernorm.weight,
    )


def _parts(modules: list[Any], fuse: bool) -> list[Linear]:
    parts = [(m.weight, m.bias) for m in modules]
    if not fuse:
        return parts
    biases = [bias for _, bias in parts if bias is not None]
    return [(torch.cat([w for w, _ in parts]), torch.cat(biases) if biases else None)]
