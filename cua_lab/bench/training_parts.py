"""The bench's parts about training: one update on the same batch, model and loss.

    sft   32 demonstrations of a click: mean cross-entropy over the answers, one AdamW update
    grpo  32 sampled episodes of a click: the clipped surrogate over their tokens, one AdamW update

Peers: transformers' own forward pass with logits at every position, as its users write it, and
TRL's loss where TRL is installed. All of them share our micro-batch, our initial weights, the same
fused AdamW and the limit on the gradient's norm. Invariant: where a loss or the norm of a gradient
differs by more than 1e-4 of it there is no comparison, and a part raises `LabError` instead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from cua_lab.bench import trl_losses
from cua_lab.bench.machine_limits import Limits
from cua_lab.bench.pairs import Measured, Way, growing, interleaved, pairs_of
from cua_lab.bench.peer_batch import Loss, PeerBatch
from cua_lab.bench.token_parts import later, sizes
from cua_lab.engine.engine import Engine
from cua_lab.errors import LabError
from cua_lab.play.episode_samples import episode_samples
from cua_lab.play.worker import Worker
from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import Batch, Example, collate
from cua_lab.recipes import load_recipe
from cua_lab.recipes.settings import GrpoSettings, SftSettings
from cua_lab.run.stage_context import StageContext, build_stage, demonstrator_of, new_policy
from cua_lab.stitching.codec import codec_from_tokenizer
from cua_lab.stitching.sample import Sample
from cua_lab.training.trainer import GRPOTrainer, advantages_of
from cua_lab.training.warmup import SftExample, make_example, make_optimizers, sft_step

ROWS = 32
TOLERANCE = 1e-4
"""Largest difference between losses that count as the same; of norms, as a share."""
Step = tuple[float, float]
"""Loss, and the norm of its gradient before it is limited."""


async def sft(rounds: int, top: Limits) -> Measured:
    """A warm-up step."""
    context, policy = _click()
    demonstrator = demonstrator_of(context)
    assert demonstrator is not None  # the lab's own recipes bring one
    made = [make_example(policy, demonstrator(index)) for index in range(ROWS)]
    settings = context.stage.sft
    batch = _peer_batch(policy, [m.example for m in made], [m.loss_mask.tolist() for m in made])
    ours = partial(_own_sft, _copied(policy), settings)
    peers = {"transformers' logits": _hf_nll, **trl_losses.sft_losses()}
    what = f"{ROWS} demonstrations, {int(batch.trained.sum())} of {batch.trained.numel()} tokens"
    return await _measured(
        _Work("sft", "demonstrations", what, policy, batch), ours, made, peers, rounds, top
    )


async def grpo(rounds: int, top: Limits) -> Measured:
    """A step on episodes that the policy has just played; rewards are dealt in turn, since a policy
    with random weights has none."""
    context, policy = _click()
    samples = await _samples(context, policy)
    settings = replace(context.stage.grpo, kl="none", kl_coef=0.0, zero_variance="counted")
    whole = [Example(s.stitched.tokens, s.pixel_values, s.image_grid_thw) for s in samples]
    masks = [[0] * s.stitched.response_start + list(s.stitched.loss_mask) for s in samples]
    batch = replace(
        _peer_batch(policy, whole, masks),
        advantages=torch.tensor(advantages_of(samples, settings).values, dtype=torch.float32),
    )
    ours = partial(_own_grpo, _copied(policy), settings)
    peers = {"transformers' logits": _hf_surrogate, **trl_losses.grpo_losses()}
    what = f"{len(samples)} episodes, {int(batch.trained.sum())} of {batch.trained.numel()} tokens"
    return await _measured(
        _Work("grpo", "episodes", what, policy, batch), ours, samples, peers, rounds, top
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """What a part measures."""

    part: str
    counted: str
    """What there may be more of: "episodes"."""
    what: str
    policy: Policy
    batch: PeerBatch


async def _measured(
    work: _Work,
    ours: Callable[[Sequence[Any]], Step],  # of SftExample, or of Sample
    rows: Sequence[Any],
    peers: Mapping[str, Loss],
    rounds: int,
    top: Limits,
) -> Measured:
    """Ours beside the peers on all rows, and ours on a quarter and a half of them."""
    first = partial(ours, rows)
    ways, note = _ways(f"{work.part} step", first, work.policy, work.batch, peers)
    timings = await interleaved(ways, rounds=rounds)
    why = _why(top, work.policy, work.batch)
    growth = {n: later(partial(ours, rows[:n])) for n in (ROWS // 4, ROWS // 2, ROWS)}
    return Measured(
        pairs_of(work.part, work.what, timings, note=note, **why),
        [await growing(work.part, work.counted, growth, rounds=rounds)],
    )


def _click() -> tuple[StageContext, Policy]:
    recipe = load_recipe("laptop")
    context = build_stage(recipe, recipe.stage("click"))
    return context, new_policy(context, demonstrator_of(context))


async def _samples(context: StageContext, policy: Policy) -> list[Sample]:
    engine = Engine(policy, max_batch=ROWS)
    try:
        worker = Worker(engine, context.config, context.runtime, concurrency=ROWS)
        episodes = await worker.play(context.training_plans(0)[:ROWS])
    finally:
        engine.close()
    codec = codec_from_tokenizer(policy.tokenizer)
    found = [
        s for e in episodes for s in episode_samples(e, codec, policy.vision, merge=policy.merge)
    ]
    return [replace(sample, reward=float(index % 2)) for index, sample in enumerate(found)]


# ---------------------------------------------------------------- ours


def _own_sft(policy: Policy, settings: SftSettings, made: Sequence[SftExample]) -> Step:
    # A new optimizer each time, for every way of the part: the update is part of the step.
    found = sft_step(policy, make_optimizers(policy, settings), made, settings, 1)
    return found.loss, found.grad_norm


def _own_grpo(policy: Policy, settings: GrpoSettings, samples: Sequence[Sample]) -> Step:
    trainer = GRPOTrainer(policy, replace(settings, logprob_gap_limit=1e9))  # weights move on
    found = trainer.step(samples)
    return found.loss, found.grad_norm


# ---------------------------------------------------------------- peers


def _peer_batch(
    policy: Policy, examples: Sequence[Example], masks: Sequence[Sequence[bool | int]]
) -> PeerBatch:
    batch: Batch = collate(policy, examples)
    lengths = torch.tensor(batch.lengths)[:, None]
    trained = torch.zeros_like(batch.ids, dtype=torch.bool)
    for row, mask in enumerate(masks):
        trained[row, : len(mask)] = torch.tensor(mask, dtype=torch.bool)
    inputs = {
        "input_ids": batch.ids,
        "attention_mask": (torch.arange(batch.ids.shape[1]) < lengths).long(),
        "pixel_values": torch.cat([torch.from_numpy(e.pixels) for e in examples]),
        "image_grid_thw": torch.cat([torch.from_numpy(e.grids) for e in examples]),
        "mm_token_type_ids": (batch.ids == policy.image_token_id).int(),
    }
    return PeerBatch(inputs, trained, torch.ones(len(examples)))


def _logprobs(model: Any, batch: PeerBatch) -> Tensor:  # (B, T-1)
    logits = model(**batch.inputs, use_cache=False).logits[:, :-1].float()
    chosen = batch.inputs["input_ids"][:, 1:, None]
    return torch.log_softmax(logits, -1).gather(-1, chosen)[..., 0]


def _hf_nll(model: Any, batch: PeerBatch) -> Tensor:
    return -_logprobs(model, batch)[batch.trained[:, 1:]].mean()


def _hf_surrogate(model: Any, batch: PeerBatch) -> Tensor:
    found = _logprobs(model, batch)[batch.trained[:, 1:]]
    signal = batch.advantages[:, None].expand(batch.trained[:, 1:].shape)[batch.trained[:, 1:]]
    ratio = (found - found.detach()).exp()
    return -torch.minimum(ratio * signal, ratio.clamp(0.8, 1.28) * signal).mean()


def _peer_step(model: Any, loss_of: Loss, batch: PeerBatch) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loss = loss_of(model, batch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach()), float(norm)


def _ways(
    name: str,
    ours: Callable[[], Step],
    policy: Policy,
    batch: PeerBatch,
    peers: Mapping[str, Loss],
) -> tuple[dict[str, Way], str]:
    """Ours and the peers, once their first losses were seen to agree; and how far they do."""
    first, steps, gaps = ours(), {}, []
    for peer, loss_of in peers.items():
        model = cast("nn.Module", copy.deepcopy(policy.model))
        steps[peer] = partial(_peer_step, model, loss_of, batch)
        loss, norm = steps[peer]()
        gaps.append(max(abs(loss - first[0]), abs(norm / first[1] - 1)))
        if not gaps[-1] <= TOLERANCE:
            raise LabError(f"{peer} and ours differ by {gaps[-1]:.2g} on the same batch")
    ways: dict[str, Way] = {name: later(ours), **{n: later(step) for n, step in steps.items()}}
    return ways, f"losses and gradient norms agree within {max(gaps):.0e}"


def _why(top: Limits, policy: Policy, batch: PeerBatch) -> dict[str, Any]:
    text, vision = sizes(policy)
    head = cast("nn.Linear", policy.model.lm_head).weight.numel()
    tokens, patches = batch.trained.numel(), len(batch.inputs["pixel_values"])
    # Forward and twice as much backward; the head is needed where there is loss only.
    operations = 6 * (text * tokens + head * int(batch.trained.sum()) + vision * patches)
    return {
        "limit": "matrix products",
        "limit_ms": top.products_ms(operations),
        "why": "logits and their gradient only at the tokens with loss, positions from numpy,"
        " no attention mask, and a screenshot that several episodes share goes once through the"
        " vision tower. The peers have our faster vision layers, too. Both sides spend much of the"
        " rest in norms, rotary positions and gates, which are no matrix products",
    }


def _copied(policy: Policy) -> Policy:
    """With weights of its own: steps of one way move no other's. No id is forbidden here, because
    TRL forbids none, and the losses are to be the same."""
    return replace(policy, model=copy.deepcopy(policy.model), forbidden_ids=())
