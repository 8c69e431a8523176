"""One command for a machine with a GPU: does training run there, how fast, and in how much memory.

    contract   a small run through an engine: episodes, GRPO steps, the gap after every push
    steps      a network of a real shape with random weights: tokens/s, memory, share of the peak
    parity     the same batch in one process and in all of them: how far their gradients are apart

The steps are the trainer's own updates (scoring, comparison, loss, backward, clip, AdamW) on
made-up sequences with one screenshot each. Invariant: a figure that was not measured is `None`,
such as the share of the peak on a device whose data sheet is not in `training.hardware`.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import Example, collate
from cua_lab.recipes import GrpoSettings, TrainerSettings, load_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.memory import peak_rss_gib
from cua_lab.training.batching import MicroBatch
from cua_lab.training.hardware import CARDS, memory_of, passes_of, real_config
from cua_lab.training.learner import Learner
from cua_lab.training.ranks import ALONE, Ranks
from cua_lab.training.shares import Minibatch, Piece, shares
from cua_lab.training.updates import Updates

GRID = (1, 20, 26)
"""Patches of the screenshot: 416 x 320 px, 130 image tokens."""
MERGED = 4
SIZES = ("tiny", "2b", "4b")
ENGINES = ("embedded", "vllm", "sglang")
ANSWER = 0.2
"""Share of a sequence that the policy is taken to have said."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What a small run through an engine showed."""

    engine: str
    steps: int
    episodes: int
    failed: int
    gap: float | None
    """Largest difference of one token's log-probability between engine and trainer."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What training steps of a real shape took."""

    device: str
    processes: int
    parameters: int
    learning: int
    tokens: int
    """Of a step, over all processes."""
    seconds: float
    """Of the fastest step but the first."""
    peak_gib: float
    """On a GPU what torch held at most; on a CPU the process's resident size."""
    worked_out_gib: float
    of_peak: float | None
    """Share of the card's bfloat16 peak, recomputed activations counted as work."""
    gap: float
    """Between two scorings of the same tokens by the same weights."""

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


async def contract(kind: str, device: str, folder: Path) -> Contract:
    """Two GRPO steps of the smoke recipe's clicks, sampled by an engine of `kind`."""
    from cua_lab.run.job import run_recipe

    recipe = load_recipe(
        "smoke",
        [
            *(f"engine.kind={kind}", f"trainer.device={device}", "policy.heads=2"),
            *("grpo.steps=2", "eval.episodes=4", "eval.ablations=[]", "run.parallel_stages=1"),
        ],
    )
    recipe = replace(recipe, stages=(recipe.stage("click"),))
    summary = await run_recipe(recipe, RunFolder.create(folder, resume=False))
    episodes = summary["episodes"]
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return Contract(
        engine=kind,
        steps=sum(step["phase"] == "grpo" for step in steps),
        episodes=sum(episodes.values()),
        failed=episodes["failed"],
        gap=summary["logprob_gap_max"],
    )


def speed(
    size: str, settings: TrainerSettings, *, rows: int, length: int, steps: int, ranks: Ranks
) -> Speed:
    """Train `steps` steps on `rows` sequences of `length` tokens for each process, one sequence a
    forward pass."""
    policy = random_policy(size, settings)
    learner = Learner(policy, settings, ranks)
    part = made_up(learner, rows * ranks.count, length)
    mine = shares([part], ranks.count)[ranks.rank]
    optimizer = torch.optim.AdamW(learner.parameters, lr=1e-6, fused=True)
    took, gaps = [], []
    for _ in range(steps + 1):
        _wait(learner.device)
        started = time.perf_counter()
        done = updates_of(learner, optimizer).run(mine, lambda: 1e-6)
        _wait(learner.device)
        took.append(time.perf_counter() - started)
        gaps += [float(gap.max()) for _, gap in done.gaps[:1] if len(took) == 1]
    config = policy.model.config
    seconds, tokens = min(took[1:]), rows * ranks.count * length
    known = memory_of(config, settings, tokens=length, image_share=_images() / length)
    return Speed(
        device=_name(learner.device),
        processes=ranks.count,
        parameters=known.parameters,
        learning=known.learning,
        tokens=tokens,
        seconds=seconds,
        peak_gib=_peak_gib(learner.device),
        worked_out_gib=known.total / 2**30,
        of_peak=_of_peak(learner.device, settings, known.parameters, tokens / ranks.count, seconds),
        gap=max(gaps),
    )


def parity(settings: TrainerSettings, ranks: Ranks, *, rows: int = 5, length: int = 192) -> float:
    """The relative difference of the gradient's norm, in all processes and in one, of one batch."""
    norms: list[float] = []
    for group in (ranks, ALONE):
        place = settings if group is ranks else replace(settings, shard=False)
        learner = Learner(random_policy("tiny", place), place, group)
        part = made_up(learner, rows, length)
        optimizer = torch.optim.AdamW(learner.parameters, lr=0.0)
        mine = shares([part], group.count)[group.rank]
        norms += updates_of(learner, optimizer).run(mine, lambda: 0.0).norms
    together, one = norms
    return abs(together - one) / one


def random_policy(size: str, settings: TrainerSettings) -> Policy:
    """A network of a real shape with random weights, and nothing to read or write text with."""
    from transformers import Qwen3VLForConditionalGeneration

    half = settings.precision == "bfloat16" and settings.lora is not None
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if half else torch.float32)
    try:
        torch.manual_seed(0)
        network: Any = Qwen3VLForConditionalGeneration(real_config(size))
    finally:
        torch.set_default_dtype(before)
    nothing: Any = None
    return Policy(network, nothing, nothing, "qwen3_vl", "0-1000", (), (), "random")


def made_up(learner: Learner, rows: int, length: int) -> Minibatch:
    """Sequences of a screenshot and random ids, each a forward pass of its own; what the engine
    would have said of them is what the policy says before the first update."""
    policy = learner.policy
    generator = np.random.default_rng(0)
    pads, pieces = _images(), []
    for place in range(rows):
        text = generator.integers(0, 1000, length - pads)
        ids = [int(text[0]), *[policy.image_token_id] * pads, *map(int, text[1:])]
        pixels = generator.standard_normal((math.prod(GRID), 1536), dtype=np.float32)
        batch = collate(policy, [Example(ids, pixels, np.array([GRID], dtype=np.int64))])
        loss_mask = torch.zeros(1, length, dtype=torch.bool)
        loss_mask[0, -max(1, int(ANSWER * length)) :] = True
        with torch.no_grad():
            said = learner.score(batch, loss_mask, temperature=1.0).logprobs.cpu()
        micro = MicroBatch((place,), batch, loss_mask, said, loss_mask)
        count = rows * int(loss_mask.sum())
        sign = 1.0 if place % 2 else -1.0
        weights = torch.tensor([1 / count], dtype=torch.float64)
        pieces.append(Piece(place, micro, torch.tensor([sign]), weights))
    return tuple(pieces)


def updates_of(learner: Learner, optimizer: torch.optim.Optimizer) -> Updates:
    """The trainer's updates, which compare and do not refuse."""
    settings = GrpoSettings(logprob_gap_limit=math.inf)
    return Updates(
        learner,
        settings,
        optimizer,
        temperature=1.0,
        reference=None,
        explain=lambda micro, trainer, gap, worst: f"a gap of {worst}",
    )


def described(found: Speed, apart: float | None) -> str:
    """The lines that the command prints."""
    share = "no data sheet for it here" if found.of_peak is None else f"{found.of_peak:.0%} of peak"
    together = "one process: nothing to compare" if apart is None else f"{apart:.1e} apart"
    return (
        f"steps      {found.parameters / 1e9:.2f} G weights, {found.learning / 1e6:.0f} M learn,"
        f" {found.device} x {found.processes}: {found.tokens} tokens in {found.seconds:.2f} s,"
        f" {found.tokens_per_s:.0f} tokens/s, {share}\n"
        f"memory     {found.peak_gib:.1f} GiB at most, {found.worked_out_gib:.1f} worked out\n"
        f"parity     {together}"
    )


def _images() -> int:
    return math.prod(GRID) // MERGED


def _wait(device: torch.device) -> None:
    """A GPU works on after the call has returned."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _peak_gib(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**30
    return peak_rss_gib()


def _of_peak(
    device: torch.device, settings: TrainerSettings, weights: int, tokens: float, seconds: float
) -> float | None:
    """Of the card that this process has; `None` for one without a data sheet here."""
    name = _name(device)
    for card in CARDS:
        if card.name.split()[-1] in name or card.name.split()[0] in name.split():
            return passes_of(settings) * weights * tokens / seconds / (card.tflops * 1e12)
    return None
