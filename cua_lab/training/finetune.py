"""Supervised fine-tuning of any policy this lab loads, whole or by adapters.

    rows ──batches──▶ examples ──micro-batches──▶ loss ──▶ AdamW, cosine ──▶ merged export

Invariants: the gradient of an update is that of the mean over all its assistant tokens, however it
is cut into micro-batches; going on from a checkpoint gives the same bits as never having stopped.

Why this is not TRL's SFTTrainer (1.16, read): with images its collator renders conversations
without their tools, its training template for Qwen2.5-VL drops tool calls and counts the newline
after `<|im_end|>`, which no engine samples, as the assistant's, and its masks exist only for
templates that it knows to the byte. So the loop is a plain one over this package's masks and
scores; the parts that are right are used as they are: peft, torch, transformers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cua_lab.errors import LabError
from cua_lab.policy.scoring import collate, score
from cua_lab.recipes.sft_recipe import TrainSettings
from cua_lab.training.precision import Precision, save_memory
from cua_lab.training.sft_data import SftDataset, batches
from cua_lab.training.warmup import SftExample, SftMetrics, set_rate

if TYPE_CHECKING:
    from cua_lab.policy.policy import Policy


@dataclass(slots=True)
class FinetuneState:
    """Counters that a checkpoint keeps."""

    step: int = 0
    """Updates done."""


class Finetune:
    """A training as an iterator: one update for each value taken; the caller may stop at any."""

    def __init__(
        self,
        policy: Policy,
        data: SftDataset,
        settings: TrainSettings,
        *,
        seed: int,
        precision: Precision,
        held_out: Sequence[int] = (),
        gradient_checkpointing: bool = False,
    ) -> None:
        """`data`'s last rows, `held_out`, are measured and never trained on."""
        trained = len(data) - len(held_out)
        if trained < 1:
            raise LabError(f"data.held_out is {len(held_out)} of {len(data)} rows: none is left")
        self.policy, self.settings, self.state = policy, settings, FinetuneState()
        self.steps = settings.steps or math.ceil(settings.epochs * trained / settings.batch)
        self._data, self._held_out, self._precision = data, tuple(held_out), precision
        self._order = list(
            batches(
                data.reader.rows[:trained],
                data.reader.settings,
                count=self.steps,
                size=settings.batch,
                seed=seed,
            )
        )
        policy.model.to(precision.device)
        if gradient_checkpointing:
            save_memory(policy.model)
        self.optimizer = make_optimizer(policy, settings)

    def __iter__(self) -> Iterator[SftMetrics]:
        """From wherever `state` stands; the network is left as it is used, in `eval`."""
        with ThreadPoolExecutor(1, "sft-data") as ahead:
            try:
                waiting = ahead.submit(self._examples, self.state.step)
                while self.state.step < self.steps:
                    started = time.perf_counter()
                    examples = waiting.result()
                    if self.state.step + 1 < self.steps:
                        waiting = ahead.submit(self._examples, self.state.step + 1)
                    yield self._update(examples, started)
            finally:
                waiting.cancel()
                self.policy.model.eval()

    def _examples(self, step: int) -> list[SftExample]:
        if step >= self.steps:
            return []
        return [self._data.example(index) for index in self._order[step]]

    def _update(self, examples: Sequence[SftExample], started: float) -> SftMetrics:
        tokens = sum(int(item.loss_mask.sum()) for item in examples)
        set_rate(self.optimizer, rate_at(self.state.step, self.steps, self.settings))
        self.optimizer.zero_grad(set_to_none=True)
        self.policy.model.train()
        loss = 0.0
        for micro in _micro(examples, self.settings.micro_batch):
            part = self._nats(micro) / tokens
            part.backward()  # type: ignore[no-untyped-call]
            loss += float(part.detach())
        norm = torch.nn.utils.clip_grad_norm_(_learning(self.policy), self.settings.grad_clip)
        self.optimizer.step()
        self.policy.model.eval()
        self.state.step += 1
        step = self.state.step
        due = bool(self._held_out) and (
            step % self.settings.measure_every == 0 or step == self.steps
        )
        return SftMetrics(
            step=step,
            loss=loss,
            tokens=tokens,
            sequence_tokens=sum(len(item.example.ids) for item in examples),
            grad_norm=float(norm),
            lr=self.optimizer.param_groups[0]["lr"],
            seconds=time.perf_counter() - started,
            check=self.held_out_loss() if due else None,
        )

    @torch.no_grad()
    def held_out_loss(self) -> float:
        """Mean cross-entropy over the assistant's tokens of the rows never trained on, nats."""
        size = self.settings.micro_batch or self.settings.batch
        total, tokens = 0.0, 0
        for first in range(0, len(self._held_out), size):
            part = [self._data.example(index) for index in self._held_out[first : first + size]]
            total += float(self._nats(part))
            tokens += sum(int(item.loss_mask.sum()) for item in part)
        return total / tokens

    @torch.no_grad()
    def probe(self) -> torch.Tensor:
        """Log-probabilities of the first row's assistant tokens, (n,): the same before a merge and
        after it."""
        item = self._data.example(0)
        batch = collate(self.policy, [item.example])
        mask = torch.zeros_like(batch.ids, dtype=torch.bool)  # (1, T)
        mask[0, : len(item.loss_mask)] = torch.from_numpy(item.loss_mask)
        return score(self.policy, batch, mask).logprobs[mask]

    def _nats(self, examples: Sequence[SftExample]) -> torch.Tensor:
        """Summed cross-entropy over the assistant's tokens."""
        batch = collate(self.policy, [item.example for item in examples])
        mask = torch.zeros_like(batch.ids, dtype=torch.bool)  # (B, T)
        for row, item in enumerate(examples):
            mask[row, : len(item.loss_mask)] = torch.from_numpy(item.loss_mask)
        with self._precision.autocast:
            return -score(self.policy, batch, mask).logprobs[mask].sum()


def rate_at(step: int, steps: int, settings: TrainSettings) -> float:
    """The learning rate of update number `step` (from 0): up in a line, down along a cosine."""
    rising = round(settings.warmup * steps)
    if step < rising:
        return settings.lr * (step + 1) / (rising + 1)
    done = (step - rising) / max(1, steps - rising)
    falling = 0.5 * (1 + math.cos(math.pi * done))
    return settings.lr * (settings.final_lr + (1 - settings.final_lr) * falling)


def make_optimizer(policy: Policy, settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW on what learns; only matrices decay."""
    parameters = _learning(policy)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.lr,
        betas=(0.9, settings.beta2),
        fused=True,
    )


def _learning(policy: Policy) -> list[torch.nn.Parameter]:
    return [parameter for parameter in policy.model.parameters() if parameter.requires_grad]


def _micro(examples: Sequence[SftExample], size: int | None) -> Iterator[Sequence[SftExample]]:
    size = size or len(examples)
    for first in range(0, len(examples), size):
        yield examples[first : first + size]
