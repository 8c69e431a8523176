"""A policy of a few thousand weights, and samples rolled out from it without an engine."""

import io
from collections.abc import Callable, Sequence

import numpy as np
import torch
from PIL import Image

from cua_lab.policy.policy import Policy, build_policy
from cua_lab.policy.scoring import Example, collate, masked_logits, policy_forward
from cua_lab.policy.shape import Shape
from cua_lab.policy.tokenizer import Corpus
from cua_lab.stitching.codec import codec_from_tokenizer
from cua_lab.stitching.episode_images import episode_images
from cua_lab.stitching.sample import Sample, failed_sample, samples_of
from cua_lab.stitching.stitch import stitch
from cua_lab.stitching.turn import Turn

Reward = Callable[[Sequence[int]], float]


def tiny_policy(seed: int = 0) -> Policy:
    shape = Shape(hidden=32, layers=2, vision_hidden=32, mlp_ratio=2, grid_side=4)
    return build_policy(shape, Corpus(("click the red button", "press left and right")), seed=seed)


def screen(seed: int) -> bytes:
    """A 64 px PNG of coloured noise."""
    values = np.random.default_rng(seed).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "PNG")
    return buffer.getvalue()


@torch.no_grad()
def roll_out(
    policy: Policy,
    reward: Reward,
    *,
    seeds: Sequence[int],
    group: str,
    tokens: int = 1,
    text: str = "click",
    temperature: float = 1.0,
) -> list[Sample]:
    """For each seed an answer of `tokens` ids after one screenshot (the group's) and a text."""
    tokenizer = policy.tokenizer
    images = episode_images([screen(sum(map(ord, group)))], policy.vision)
    pads = int(images.image_grid_thw.prod()) // policy.merge**2
    prompt = tokenizer.encode(
        f"<|vision_start|>{'<|image_pad|>' * pads}<|vision_end|>{text}", add_special_tokens=False
    )
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    ids = [list(prompt) for _ in seeds]
    logprobs: list[list[float]] = [[] for _ in seeds]
    for _ in range(tokens):
        examples = [Example(row, images.pixel_values, images.image_grid_thw) for row in ids]
        logits = policy_forward(policy, collate(policy, examples))[:, -1]  # (B, V)
        masked = masked_logits(logits, temperature=temperature, forbidden_ids=policy.forbidden_ids)
        for row, spread in enumerate(torch.log_softmax(masked, dim=-1)):
            drawn = int(torch.multinomial(spread.exp(), 1, generator=generators[row]))
            ids[row].append(drawn)
            logprobs[row].append(float(spread[drawn]))
    samples = []
    for row, seed in enumerate(seeds):
        output = tuple(ids[row][len(prompt) :])
        turn = Turn(tuple(prompt), output, tuple(logprobs[row]))
        samples += samples_of(
            stitch([turn], codec_from_tokenizer(tokenizer)),
            images,
            reward=reward(output),
            group=group,
            episode=f"{group}/{seed}",
        )
    return samples


def write_off(policy: Policy, group: str) -> Sample:
    """A failed episode of the group."""
    return failed_sample(
        group=group,
        episode=f"{group}/failed",
        reason="the screen died",
        codec=codec_from_tokenizer(policy.tokenizer),
        patchifier=policy.vision,
    )


def batch(
    policy: Policy, reward: Reward, *, groups: int = 2, size: int = 4, start: int = 0, **options
) -> list[Sample]:
    """Groups of answers."""
    samples = []
    for g in range(groups):
        seeds = range(start + 100 * g, start + 100 * g + size)
        samples += roll_out(policy, reward, seeds=seeds, group=f"g{g}", **options)
    return samples
