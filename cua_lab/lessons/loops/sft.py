"""Supervised fine-tuning in one file: learn to say what a demonstrator said.

    demo ──template──▶ ids ──images──▶ longer ids ──mask──▶ cross-entropy ──▶ AdamW

Only the assistant's tokens carry loss, its end token included: without it answers never end.

The real one, `cua_lab.training.warmup`, adds
- a learning rate that rises first and falls at the end (`SftSteps`),
- demonstrations prepared in a second thread while torch computes,
- the head run on assistant tokens alone (`cua_lab.policy.scoring.score`): a fifth of the tokens,
- a stop when sampled episodes succeed often enough (`cua_lab.run.stage`),
- LoRA, resuming and any data set on disk (`cua_lab.training.finetune`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cua_lab.demonstrators.demos import Demo, Demonstrator, corpus_of
from cua_lab.lessons.loops.click_task import click_player
from cua_lab.policy.model import SHAPES
from cua_lab.policy.policy import Policy, build_policy
from cua_lab.policy.scoring import Example, collate, masked_logits, policy_forward
from cua_lab.policy.template import encode, render_text

IGNORE = -100  # cross_entropy's word for "no loss here"


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """One demonstration, ready to train on."""

    example: Example
    """ids (T,), pixels (patches, patch_dim), grids (images, 3)."""
    targets: list[int]
    """(T,): the id where the assistant said it, `IGNORE` elsewhere."""


def lesson_of(policy: Policy, demo: Demo) -> Lesson:
    """Render a conversation, make room for its images, and mark what the assistant said."""
    # 1. Messages become text, text becomes ids; an image is ONE pad id.
    text = render_text(policy.tokenizer, demo.messages, demo.tools, add_generation_prompt=False)
    ids = encode(policy.tokenizer, text)

    # 2. Each pad becomes as many ids as its image has visual tokens (merge x merge patches each).
    patches = [policy.vision.patchify(image) for image in demo.images]
    pixels = np.concatenate([pixels for pixels, _ in patches])  # (n_patches, patch_dim)
    grids = np.concatenate([grid for _, grid in patches])  # (n_images, 3): time, rows, columns
    counts = iter(grids.prod(axis=1) // policy.merge**2)  # (n_images,)
    pad = policy.image_token_id
    ids = [one for i in ids for one in ([pad] * int(next(counts)) if i == pad else [i])]  # (T,)

    # 3. The assistant speaks from after its header up to and with <|im_end|>.
    header = encode(policy.tokenizer, "<|im_start|>assistant\n")
    (end,) = encode(policy.tokenizer, "<|im_end|>")
    targets, speaking = [], False
    for at, token in enumerate(ids):
        speaking = speaking or ids[at - len(header) : at] == header
        targets.append(token if speaking else IGNORE)
        speaking = speaking and token != end
    return Lesson(Example(ids, pixels, grids), targets)


def sft_loss(policy: Policy, lessons: list[Lesson]) -> Tensor:
    """Mean cross-entropy over the assistant's tokens, nats."""
    batch = collate(policy, [lesson.example for lesson in lessons])  # pads on the right
    targets = torch.full_like(batch.ids, IGNORE)  # (B, T)
    for row, lesson in enumerate(lessons):
        targets[row, : len(lesson.targets)] = torch.tensor(lesson.targets)
    logits = policy_forward(policy, batch)  # (B, T, V)
    logits = masked_logits(logits, temperature=1.0, forbidden_ids=policy.forbidden_ids)
    # Position t predicts token t + 1.
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())


def sft(
    policy: Policy,
    player: Demonstrator,  # a function from an index to a Demo
    *,
    steps: int,
    batch: int = 16,
    demonstrations: int = 1000,
    lr: float = 3e-3,
    seed: int = 0,
) -> Iterator[float]:
    """Train in place; the loss of each step."""
    optimizer = torch.optim.AdamW(
        policy.model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    rng = random.Random(seed)
    for _ in range(steps):
        demos = [player(rng.randrange(demonstrations)) for _ in range(batch)]
        loss = sft_loss(policy, [lesson_of(policy, demo) for demo in demos])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        yield float(loss.detach())


if __name__ == "__main__":
    player = click_player()
    policy = build_policy(SHAPES["smoke"], corpus_of((player,)), seed=0)
    for step, loss in enumerate(sft(policy, player, steps=100), start=1):
        if step % 10 == 0:
            print(f"step {step:3}   loss {loss:.3f} nats a token")
