"""Sampling in its simplest form: transformers' own cache, one token a step, all rows together.

The engine does this faster and for conversations; here is the loop to read, and to look at a
policy while it warms up. Invariant: the draw is from `masked_logits`, the distribution that `score`
scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch

from cua_lab.policy.model import encode_images
from cua_lab.policy.policy import Policy
from cua_lab.policy.positions import next_position
from cua_lab.policy.scoring import Example, collate, masked_logits


@torch.no_grad()
def sample(
    policy: Policy,
    prompts: Sequence[Example],
    *,
    max_tokens: int,
    seed: int,
    temperature: float = 1.0,
) -> list[list[int]]:
    """An answer for each prompt, stop token included; temperature 0 takes the likeliest token."""
    answers: list[list[int]] = [[] for _ in prompts]
    generator = torch.Generator().manual_seed(seed)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i].ids))
    for _, group in groupby(order, key=lambda i: len(prompts[i].ids)):  # no padding within a group
        rows = list(group)
        found = _sample_group(
            policy, [prompts[i] for i in rows], max_tokens, temperature, generator
        )
        for row, answer in zip(rows, found, strict=True):
            answers[row] = answer
    return answers


def _sample_group(
    policy: Policy,
    prompts: Sequence[Example],
    max_tokens: int,
    temperature: float,
    generator: torch.Generator,
) -> list[list[int]]:
    from transformers import DynamicCache

    batch = collate(policy, prompts)
    images = None
    if batch.image_index:
        features = encode_images(policy.model, batch.pixels, batch.grids)
        images = features.select(batch.image_index).for_model()
    cache = DynamicCache(config=policy.model.config.text_config)
    ids, positions = batch.ids, batch.positions
    # Explicit positions: with a cache and implicit ones a new image is silently misplaced.
    at = np.array([next_position(positions[:, row].numpy()) for row in range(len(prompts))])
    chosen: list[torch.Tensor] = []
    for _ in range(max_tokens):
        states = policy.model.model(
            input_ids=ids,
            position_ids=positions,
            mm_encoder_outputs=images,
            cache=cache,
            use_cache=True,
        ).last_hidden_state[:, -1]  # (B, H)
        ids = _draw(policy, states, temperature, generator)  # (B, 1)
        chosen.append(ids)
        if _all_stopped(chosen, policy.stop_ids):
            break
        positions, images = (
            torch.from_numpy(np.broadcast_to(at[:, None], (3, len(at), 1)).copy()),
            None,
        )
        at = at + 1
    table = torch.cat(chosen, dim=1).tolist()
    return [_until_stop(row, policy.stop_ids) for row in table]


def _draw(
    policy: Policy, states: torch.Tensor, temperature: float, generator: torch.Generator
) -> torch.Tensor:
    logits = masked_logits(
        policy.model.lm_head(states),
        temperature=temperature or 1.0,
        forbidden_ids=policy.forbidden_ids,
    )
    if temperature == 0.0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial(torch.softmax(logits, -1), 1, generator=generator)


def _all_stopped(chosen: Sequence[torch.Tensor], stops: Sequence[int]) -> bool:
    said = torch.cat(list(chosen), dim=1)  # (B, steps)
    return bool(torch.isin(said, torch.tensor(stops)).any(dim=1).all())


def _until_stop(row: list[int], stops: Sequence[int]) -> list[int]:
    end = next((i + 1 for i, token in enumerate(row) if token in stops), len(row))
    return row[:end]
