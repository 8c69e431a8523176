"""Sampling in one file: one row, one token after the other, with a cache of keys and values.

    prompt ──model──▶ logits ──mask, temperature──▶ probabilities ──uniform──▶ token ──▶ again

A draw is the inverse of the cumulative distribution at a uniform number, and the stream of uniforms
belongs to the request's seed: what is drawn depends on nobody else in the batch.

The real one, `cua_lab.engine.engine`, adds
- many rows at once, dropped as they finish (`cua_lab.engine.batch`), in rounds whose members time
  cannot change (`cua_lab.engine.rounds`),
- what a conversation said before is not computed again (`cua_lab.engine.prefix_cache`),
- attention written for a CPU, whose rows do not mind each other (`cua_lab.engine.decoder`),
- top-p, top-k and logit biases (`cua_lab.engine.token_sampling`),
- the wire (`cua_lab.serving.server`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from transformers import DynamicCache

from cua_lab.demonstrators.demos import corpus_of
from cua_lab.engine.token_sampling import uniforms
from cua_lab.lessons.loops.click_task import FRESH, click_player
from cua_lab.policy.model import SHAPES, encode_images
from cua_lab.policy.policy import Policy, build_policy
from cua_lab.policy.positions import next_position
from cua_lab.policy.scoring import Example, collate, masked_logits
from cua_lab.training.warmup import make_prompt


@dataclass(frozen=True, slots=True)
class Answer:
    """What the policy said."""

    ids: tuple[int, ...]
    """The stop token included when it was sampled."""
    logprobs: tuple[float, ...]
    """One per id, of the distribution that it was drawn from."""


@torch.no_grad()
def decode(
    policy: Policy, prompt: Example, *, max_tokens: int, seed: int, temperature: float = 1.0
) -> Answer:
    """Sample until a stop token or the limit."""
    uniform = uniforms(seed, 0, max_tokens)  # (max_tokens,) in [0, 1)
    batch = collate(policy, [prompt])
    ids, positions = batch.ids, batch.positions  # (1, T), (3, 1, T): time, row, column

    # 1. Screenshots go through the vision tower once; the first call puts them over their pads.
    images = None
    if batch.image_index:
        features = encode_images(policy.model, batch.pixels, batch.grids)
        images = features.select(batch.image_index).for_model()

    cache = DynamicCache(config=policy.model.config.text_config)
    place = next_position(positions[:, 0].numpy())  # an image advances it by its side, not its area
    said: list[int] = []
    logprobs: list[float] = []
    for step in range(max_tokens):
        # 2. The first call reads the whole prompt, each later one a single token: the keys and
        #    values of all before are in the cache.
        states = policy.model.model(
            input_ids=ids,
            position_ids=positions,
            mm_encoder_outputs=images,
            cache=cache,
            use_cache=True,
        ).last_hidden_state  # (1, T or 1, H)
        logits = policy.model.lm_head(states[:, -1])[0]  # (V,)

        # 3. Forbidden ids at -inf: a sampled image pad would have no image.
        logits = masked_logits(logits, temperature=temperature, forbidden_ids=policy.forbidden_ids)
        spread = torch.log_softmax(logits, dim=-1)  # (V,)

        # 4. Where the uniform number falls on the cumulative distribution.
        cumulative = spread.double().exp().cumsum(0)  # (V,)
        token = int(torch.searchsorted(cumulative, uniform[step] * cumulative[-1], right=True))
        said.append(token)
        logprobs.append(float(spread[token]))
        if token in policy.stop_ids:
            break

        # 5. The token is the next input. Positions are given: transformers would misplace it.
        ids, images = torch.tensor([[token]]), None
        positions = torch.from_numpy(np.full((3, 1, 1), place))
        place += 1
    return Answer(tuple(said), tuple(logprobs))


if __name__ == "__main__":
    player = click_player()
    policy = build_policy(SHAPES["smoke"], corpus_of((player,)), seed=0)
    prompt = make_prompt(policy, player(FRESH))
    print(f"a policy that has learnt nothing, after {len(prompt.ids)} tokens of prompt:")
    for seed in range(5):
        answer = decode(policy, prompt, max_tokens=12, seed=seed)
        text = policy.tokenizer.decode(answer.ids)
        print(f"seed {seed}   {sum(answer.logprobs):7.1f} nats   {text!r}")
