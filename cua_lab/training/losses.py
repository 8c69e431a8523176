"""The policy loss: one pure function, from log-probabilities to a scalar and what to watch.

Data model: rows are sequences, columns their response tokens (B, T); `mask` says which tokens the
policy sampled. Every token has a loss l_it, and the loss is a plain weighted sum

    L = sum_i w_i sum_t mask_it * l_it

with one weight per row from `row_weights`, computed over the WHOLE batch. Invariants: adding up
the losses of micro-batches gives the loss of the batch, whatever the split; no value at a masked
position reaches the loss, the metrics or a gradient, not even NaN.

Options of `policy_loss`:

ratio   "token" is exp(logprob - old_logprob). "sequence" is GSPO (arXiv 2507.18071): all tokens of
        a row share s = exp(mean_t(logprob - old_logprob)); its clips are much smaller (3e-4, 4e-4),
        and `normalise="sequence"` is the paper's average.
kl      to the reference, d = ref_logprob - logprob (Schulman, "Approximating KL divergence", 2020):
        k1 = -d                unbiased, high variance, either sign; as a LOSS its gradient is zero
                               on average: watch it, do not train on it
        k2 = d^2 / 2           biased, low variance; on-policy its gradient is the KL's
        k3 = exp(d) - 1 - d    unbiased and never negative; GRPO's
tis     truncated importance sampling: when another program sampled, its `engine_logprobs` differ a
        little from `old_logprobs`; tis = min(exp(old - engine), tis_cap), without gradient.

Nothing is clamped but an exponential above e^30, which goes on as its tangent, so a token that is
far off still has a gradient of the right sign: KL against a reference that gives a token e^-25, and
a ratio of e^25 with a negative advantage, are where it is needed most.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kl = Literal["none", "k1", "k2", "k3"]
Ratio = Literal["token", "sequence"]
Normalise = Literal["token", "sequence", "constant"]

LOG_RATIO_LIMIT = 30.0
"""Past it an exponential goes on as a straight line: exp(30) is 1e13, exp(89) is infinite in
float32, and the square of exp(45) in a gradient's norm is."""


@dataclass(frozen=True, slots=True)
class LossMetrics:
    """What one call saw, over masked-in tokens; NaN where there was nothing to measure."""

    tokens: int
    policy_loss: float
    """The part without KL and entropy; adds up over micro-batches."""
    kl: float
    """Mean of the chosen estimator; NaN without a reference."""
    entropy: float
    """Mean, in nats; NaN when no entropies were given."""
    ratio_mean: float
    ratio_min: float
    ratio_max: float
    """Of pi / pi_old; all three are 1 at the first update of a batch."""
    clip_fraction: float
    """Share of tokens whose gradient the clip cut off."""
    tis_mean: float
    """Mean weight of the truncated importance sampling; NaN when it is off."""


@dataclass(frozen=True, slots=True)
class LossResult:
    """The loss to call `backward` on, and its metrics."""

    loss: Tensor
    metrics: LossMetrics


def row_weights(
    tokens: Sequence[int],
    *,
    normalise: Normalise = "token",
    episodes: Sequence[Hashable] | None = None,
    constant: float | None = None,
    counted: Sequence[bool] | None = None,
) -> Tensor:  # (B,)
    """The weight of each row's tokens, from the whole batch's numbers of masked-in tokens.

        token      1 / N                 every token weighs the same        DAPO, arXiv 2503.14476
        sequence   1 / (M * n_i)         every episode weighs the same      GRPO, arXiv 2402.03300
        constant   1 / (M * constant)    no bias towards short answers   Dr.GRPO, arXiv 2503.20783

    N is the number of tokens, M that of episodes with any, n_i that of the tokens of row i's
    episode: `episodes` names them, so that the parts of a split episode count as one (default:
    every row is its own). `constant` is a number of tokens, such as the longest answer allowed.

    `counted` says which rows stand in N and M (default: all). A group whose rewards are all equal
    has no gradient; counted, it makes the update smaller, by half where half of the tokens are of
    such groups. Both are in use: GRPO's formula and the defaults of TRL and verl count it
    (trl#6367 reports that as a fault, its pull request #6368 offers the other as an option), DAPO
    samples until a batch has no such group, which comes to the same as leaving it out. The default
    of `GrpoSettings.zero_variance` is to count: a step in which one group of eight tells anything
    has an eighth of the evidence, and left out it would move the weights as far as a full one.
    Leave it out where tasks are mixed and many are solved or hopeless. Rows that are not counted
    keep their weight, since a KL penalty acts on them too; where no row would be left, all count.
    """
    names = list(range(len(tokens))) if episodes is None else list(episodes)
    if len(names) != len(tokens):
        raise ValueError(f"{len(tokens)} rows but {len(names)} episodes; give one per row")
    if normalise not in ("token", "sequence", "constant"):
        raise ValueError(f'normalise is {normalise!r}; use "token", "sequence" or "constant"')
    if (normalise == "constant") != (constant is not None and constant > 0):
        raise ValueError(
            f"normalise is {normalise!r} but constant is {constant}; give a positive number of"
            ' tokens with "constant", and none otherwise'
        )
    if counted is not None and len(counted) != len(tokens):
        raise ValueError(f"{len(tokens)} rows but {len(counted)} `counted`; give one per row")
    if counted is None or not any(c and n for c, n in zip(counted, tokens, strict=True)):
        counted = [True] * len(tokens)
    per_episode: dict[Hashable, int] = {}
    for name, count in zip(names, tokens, strict=True):
        per_episode[name] = per_episode.get(name, 0) + count
    kept = {name for name, count in zip(names, counted, strict=True) if count}
    alive = max(1, sum(count > 0 for name, count in per_episode.items() if name in kept))
    if normalise == "sequence":
        weights = [1.0 / (alive * max(1, per_episode[name])) for name in names]
    else:
        total = sum(n for n, count in zip(tokens, counted, strict=True) if count)
        whole = alive * constant if constant is not None else max(1, total)
        weights = [1.0 / whole] * len(tokens)
    return torch.tensor(weights, dtype=torch.float64)


def policy_loss(
    logprobs: Tensor,  # (B, T) of the policy being trained
    old_logprobs: Tensor,  # (B, T) of the policy before this batch's first update
    advantages: Tensor,  # (B,) or (B, T)
    mask: Tensor,  # (B, T) true where the policy sampled the token
    *,
    weights: Tensor | None = None,  # (B,) from row_weights; default: of this call's mask
    ratio: Ratio = "token",
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    normalise: Normalise = "token",
    constant: float | None = None,
    kl: Kl = "none",
    kl_coef: float = 0.0,
    ref_logprobs: Tensor | None = None,  # (B, T)
    tis_cap: float | None = None,
    engine_logprobs: Tensor | None = None,  # (B, T)
    entropy: Tensor | None = None,  # (B, T)
    entropy_coef: float = 0.0,
) -> LossResult:
    """The clipped surrogate with its options; every formula is per masked-in token.

    With r = exp(logprob - old_logprob) and advantage A:

        l = - tis * min(r * A, clip(r, 1 - clip_low, 1 + clip_high) * A)
            + kl_coef * kl - entropy_coef * entropy

    The old policy, never the reference, is in the denominator, so r = 1 at the first update and
    the gradient there is the plain policy gradient. `clip_high > clip_low` leaves rare tokens room
    to grow (DAPO's "clip higher"). The ratio, the estimators of the KL and the truncated importance
    sampling are explained at the head of this module. Raises `ValueError` for shapes that differ,
    values that are not finite, and options that do not go together.
    """
    mask = mask.bool()
    _check(mask, logprobs=logprobs, old_logprobs=old_logprobs)
    if advantages.dim() == 1:
        advantages = advantages[:, None].expand_as(mask)  # (B,) -> (B, T)
    _check(mask, advantages=advantages)
    if weights is None:
        counts: list[int] = mask.sum(dim=1).tolist()
        weights = row_weights(counts, normalise=normalise, constant=constant)
    row_scale = weights.to(logprobs)[:, None]  # (B, 1)
    ratios = _ratios(_keep(mask, logprobs - old_logprobs), mask, ratio)  # (B, T)
    signal = _keep(mask, advantages.to(logprobs))
    clipped = ratios.clamp(1.0 - clip_low, 1.0 + clip_high)
    surrogate = torch.minimum(ratios * signal, clipped * signal)
    tis = _tis_weights(old_logprobs, engine_logprobs, mask, tis_cap)
    surrogate = surrogate if tis is None else surrogate * tis
    loss = policy_part = -(_keep(mask, surrogate) * row_scale).sum()

    penalty = _kl(kl, kl_coef, logprobs, ref_logprobs, mask)
    if penalty is not None and kl_coef:
        loss = loss + kl_coef * (penalty * row_scale).sum()
    spread = _spread(entropy, entropy_coef, mask)
    if spread is not None and entropy_coef:
        loss = loss - entropy_coef * (spread * row_scale).sum()

    cut = ((ratios > 1.0 + clip_high) & (signal > 0)) | ((ratios < 1.0 - clip_low) & (signal < 0))
    means = {"kl": penalty, "entropy": spread, "clip_fraction": cut, "tis_mean": tis}
    return LossResult(loss, _metrics(policy_part, ratios, mask, means))


def merge_metrics(micro_batches: Sequence[LossMetrics]) -> LossMetrics:
    """The metrics of a batch from those of its micro-batches, in their order."""
    micro_batches = [micro_batch for micro_batch in micro_batches if micro_batch.tokens]
    tokens = sum(micro_batch.tokens for micro_batch in micro_batches)
    if not tokens:
        return LossMetrics(0, 0.0, *([math.nan] * 7))

    def mean(name: str) -> float:
        return (
            math.fsum(
                getattr(micro_batch, name) * micro_batch.tokens for micro_batch in micro_batches
            )
            / tokens
        )

    return LossMetrics(
        tokens=tokens,
        policy_loss=math.fsum(micro_batch.policy_loss for micro_batch in micro_batches),
        kl=mean("kl"),
        entropy=mean("entropy"),
        ratio_mean=mean("ratio_mean"),
        ratio_min=min(micro_batch.ratio_min for micro_batch in micro_batches),
        ratio_max=max(micro_batch.ratio_max for micro_batch in micro_batches),
        clip_fraction=mean("clip_fraction"),
        tis_mean=mean("tis_mean"),
    )


def _keep(mask: Tensor, values: Tensor) -> Tensor:
    """0 where masked out, in the value and in the gradient.

    A product would not do: 0 * NaN is NaN. Always BEFORE exp: the gradient of a `where` after it
    would be 0 * inf.
    """
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def _ratios(log_ratio: Tensor, mask: Tensor, ratio: Ratio) -> Tensor:  # (B, T)
    if ratio == "sequence":
        lengths = mask.sum(dim=1, keepdim=True).clamp(min=1)  # (B, 1)
        log_ratio = (log_ratio.sum(dim=1, keepdim=True) / lengths).expand_as(log_ratio)
    elif ratio != "token":
        raise ValueError(f'ratio is {ratio!r}; use "token" or "sequence"')
    return _exp(log_ratio)


def _exp(values: Tensor) -> Tensor:
    """exp up to e^30 and its tangent beyond, value and gradient finite; 0 below is no overflow."""
    beyond = (values - LOG_RATIO_LIMIT).clamp(min=0.0)
    return values.clamp(max=LOG_RATIO_LIMIT).exp() + math.exp(LOG_RATIO_LIMIT) * beyond


def _tis_weights(
    old: Tensor, engine: Tensor | None, mask: Tensor, cap: float | None
) -> Tensor | None:  # (B, T)
    if cap is None:
        return None
    if engine is None or not cap > 0:
        raise ValueError(f"tis_cap is {cap}: it needs engine_logprobs and must be above 0")
    _check(mask, engine_logprobs=engine)
    return _exp(_keep(mask, old - engine)).clamp(max=cap).detach()


def _kl(kind: Kl, coef: float, logprobs: Tensor, ref: Tensor | None, mask: Tensor) -> Tensor | None:
    """The chosen estimator (B, T), or None when it is off."""
    if kind not in ("none", "k1", "k2", "k3"):
        raise ValueError(f'kl is {kind!r}; use "none", "k1", "k2" or "k3"')
    if kind == "none":
        if coef:
            raise ValueError(f'kl_coef is {coef} but kl is "none"; choose an estimator')
        return None
    if ref is None:
        raise ValueError(f"kl is {kind!r}: it needs ref_logprobs")
    _check(mask, ref_logprobs=ref)
    d = _keep(mask, ref - logprobs)
    return {"k1": lambda: -d, "k2": lambda: d.square() / 2, "k3": lambda: _exp(d) - 1 - d}[kind]()


def _spread(entropy: Tensor | None, coef: float, mask: Tensor) -> Tensor | None:
    """The entropies (B, T), 0 where masked out, or None where none were given."""
    if entropy is None:
        if coef:
            raise ValueError(f"entropy_coef is {coef} but no entropies were given")
        return None
    _check(mask, entropy=entropy)
    return _keep(mask, entropy)


def _metrics(
    policy_part: Tensor, ratios: Tensor, mask: Tensor, means: Mapping[str, Tensor | None]
) -> LossMetrics:
    seen = ratios.detach()[mask]  # (N,)
    return LossMetrics(
        tokens=seen.numel(),
        policy_loss=float(policy_part.detach()),
        ratio_mean=_mean(ratios, mask),
        ratio_min=float(seen.min()) if seen.numel() else math.nan,
        ratio_max=float(seen.max()) if seen.numel() else math.nan,
        **{name: _mean(values, mask) for name, values in means.items()},
    )


def _mean(values: Tensor | None, mask: Tensor) -> float:
    if values is None or not bool(mask.any()):
        return math.nan
    return float(values.detach()[mask].double().mean())


def _check(mask: Tensor, **tensors: Tensor) -> None:
    """Shapes agree and masked-in values are finite, or an error that names the place."""
    for name, values in tensors.items():
        if values.shape != mask.shape:
            raise ValueError(
                f"{name} is {tuple(values.shape)} but the mask is {tuple(mask.shape)};"
                " both are (sequences, response tokens)"
            )
        bad = mask & ~torch.isfinite(values.detach())
        if bool(bad.any()):
            row, column = bad.nonzero()[0].tolist()
            raise ValueError(
                f"{name} is {float(values.detach()[row, column])} at row {row}, token {column},"
                f" which the mask counts ({int(bad.sum())} such tokens);"
                " a missing value must be masked out"
            )
