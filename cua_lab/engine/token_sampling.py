"""How the next token is drawn.

A draw depends on three things only: the request's seed, the step, and that row of logits; never on
who else is in the batch. So every request owns a counter-based stream of uniforms, and a token is
the inverse of its row's cumulative distribution at the step's uniform.

The log-probability reported with a token is `log_softmax(logits / T)` over the ids the policy may
say; `top_p` and `top_k` narrow the draw but not the report (as sglang does), and T = 0 is greedy
with the raw log-probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cua_lab.errors import LabError

if TYPE_CHECKING:
    import torch


GREEDY_BELOW = 1e-6
"""Temperatures below count as 0, as in sglang: a logit divided by 1e-40 is infinite."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What a request asks of sampling; the defaults are those of the wire."""

    temperature: float = 1.0
    """0 is greedy, and so is anything below `GREEDY_BELOW`."""
    top_p: float = 1.0
    top_k: int = -1
    """At most this many ids; -1 is all."""
    max_tokens: int | None = None
    """`None`: as many as the context allows."""
    seed: int | None = None
    """`None`: the engine deals one out."""
    stop: tuple[str, ...] = ()
    """The text ends before the first of these."""
    stop_token_ids: tuple[int, ...] = ()
    """End the output as the end-of-turn token does; part of the ids, not of the text."""
    ignore_eos: bool = False
    min_tokens: int = 0
    """The output does not end by itself before this many."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(id, what is added to its logit), before the temperature; the report counts it."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise LabError(
                f"temperature must be a non-negative finite number, got {self.temperature}."
            )
        if not 0.0 < self.top_p <= 1.0:
            raise LabError(f"top_p must be in (0, 1], got {self.top_p}.")
        if self.top_k != -1 and self.top_k < 1:
            raise LabError(f"top_k must be -1 (disable) or at least 1, got {self.top_k}.")
        if self.max_tokens is not None and self.max_tokens < 0:
            raise LabError(f"max_new_tokens must be at least 0, got {self.max_tokens}.")
        if self.min_tokens < 0:
            raise LabError(f"min_new_tokens must be at least 0, got {self.min_tokens}.")

    @property
    def greedy(self) -> bool:
        """Whether no uniform is needed."""
        return self.temperature < GREEDY_BELOW or self.top_k == 1


def uniforms(seed: int, index: int, count: int) -> np.ndarray:
    """The stream of choice `index` of a request: float64 in [0, 1), `(count,)`."""
    key = np.array([seed % 2**64, index], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count)


class Sampler:
    """Draws for one batch of rows; rows are dropped with `keep` as they finish."""

    def __init__(self, params: Sequence[SamplingParams], forbidden: torch.Tensor) -> None:
        """`forbidden` is `(V,)`, 0 where an id may be said and -inf where it may not."""
        import torch

        device, vocabulary = forbidden.device, forbidden.numel()
        # With T = 0 the reported log-probability is the raw one: divide by 1.
        temperature = [1.0 if p.temperature < GREEDY_BELOW else p.temperature for p in params]
        self._forbidden = forbidden
        self._bias = _biases(params, forbidden)  # (B, V), or None where nobody asks for any
        self._scale = torch.tensor(temperature, device=device)[:, None]  # (B, 1)
        self._greedy = torch.tensor([p.greedy for p in params], device=device)  # (B,)
        self._top_p = torch.tensor([p.top_p for p in params], device=device, dtype=torch.float64)
        self._top_k = torch.tensor(
            [min(p.top_k, vocabulary) if p.top_k > 0 else vocabulary for p in params],
            device=device,
        )
        self._refresh()

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these rows only."""
        for name in ("_scale", "_greedy", "_top_p", "_top_k"):
            setattr(self, name, getattr(self, name)[rows])
        self._bias = None if self._bias is None else self._bias[rows]
        self._refresh()

    def _refresh(self) -> None:
        drawn = ~self._greedy
        self._draws = bool(drawn.any())
        self._all_drawn = bool(drawn.all())
        self._unscaled = bool((self._scale == 1.0).all())
        self._narrow = bool(
            (drawn & ((self._top_p < 1) | (self._top_k < self._forbidden.numel()))).any()
        )

    def logprobs(self, logits: torch.Tensor) -> torch.Tensor:
        """`(B, V)` log-probabilities of the distribution sampled from, before top-p and top-k."""
        import torch

        if self._bias is not None:
            logits = logits + self._bias
        scaled = logits if self._unscaled else logits / self._scale
        return torch.log_softmax(scaled + self._forbidden, dim=-1)

    def draw(self, logprobs: torch.Tensor, uniform: np.ndarray) -> torch.Tensor:
        """`(B,)` ids from `(B, V)` log-probabilities and `(B,)` uniforms."""
        import torch

        if not self._draws:
            return logprobs.argmax(-1)
        weights = logprobs.double().exp_()  # (B, V)
        if self._narrow:
            weights = self._narrowed(weights)
        cdf = weights.cumsum_(-1)
        total = cdf[:, -1]
        # u < 1, but u * total may round up to total, where no id lies.
        point = torch.from_numpy(uniform).to(total.device) * total
        point = torch.minimum(point, torch.nextafter(total, torch.zeros_like(total)))
        ids = torch.searchsorted(cdf, point[:, None], right=True)[:, 0]
        return ids if self._all_drawn else torch.where(self._greedy, logprobs.argmax(-1), ids)

    def _narrowed(self, weights: torch.Tensor) -> torch.Tensor:
        """Zero the ids outside top-k and outside the smallest set whose mass reaches top-p."""
        import torch

        ordered, order = weights.sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered  # mass of the ids ranked above
        rank = torch.arange(ordered.shape[-1], device=ordered.device)
        kept = (before < self._top_p[:, None]) & (rank < self._top_k[:, None])
        return torch.zeros_like(weights).scatter_(-1, order, ordered * kept)


def _biases(params: Sequence[SamplingParams], forbidden: torch.Tensor) -> torch.Tensor | None:
    import torch

    if not any(p.logit_bias for p in params):
        return None
    bias = torch.zeros(len(params), forbidden.numel(), device=forbidden.device)
    for row, p in enumerate(params):
        for token, value in p.logit_bias:
            bias[row, token] = value
    return bias
