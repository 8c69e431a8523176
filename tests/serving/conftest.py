"""A tiny policy behind an engine, noise for screens, and teacher forcing to judge by."""

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import Generation
from cua_lab.policy.policy import Policy, build_policy, load_policy
from cua_lab.policy.shape import Shape
from cua_lab.policy.tokenizer import Corpus
from tests.policy.conftest import corpus, qwen25_checkpoint  # noqa: F401  (fixtures)

TINY = Shape(hidden=32, layers=3, vision_hidden=32, mlp_ratio=2, init_std=0.3)
"""Weights large enough that a wrong position or a stale key changes the log-probabilities."""


def screen(seed: int, width: int = 64, height: int = 64) -> bytes:
    """A PNG of noise."""
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(values).save(out, "PNG", compress_level=1)
    return out.getvalue()


def words(policy: Policy, seed: int, count: int) -> list[int]:
    """Ids that may occur anywhere: no special, no end of turn."""
    refused = {*policy.forbidden_ids, *policy.stop_ids}
    allowed = [i for i in range(len(policy.tokenizer)) if i not in refused]
    return [int(i) for i in np.random.default_rng(seed).choice(allowed, count)]


def teacher_forced(policy: Policy, generation: Generation, temperature: float = 1.0) -> list[float]:
    """Log-probabilities of the first choice's ids, by transformers on the whole sequence."""
    import torch

    from cua_lab.policy.scoring import Example, collate, score

    prompt, said = generation.prompt, generation.choices[0].ids
    images = prompt.images
    pixels = [image.pixel_values for image in images] or [np.zeros((0, 0), np.float32)]
    grids = [image.grid_thw for image in images] or [np.zeros((0, 3), np.int64)]
    ids = [*prompt.ids.tolist(), *said]
    batch = collate(policy, [Example(ids, np.concatenate(pixels), np.concatenate(grids))])
    loss_mask = torch.zeros(1, len(ids), dtype=torch.bool)
    loss_mask[:, len(prompt) :] = True
    with torch.inference_mode():
        return score(policy, batch, loss_mask, temperature=temperature).logprobs[loss_mask].tolist()


def gap(a: Sequence[float], b: Sequence[float]) -> float:
    """The largest difference."""
    assert len(a) == len(b)
    return max((abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0)


@pytest.fixture(scope="session")
def tiny(corpus: Corpus) -> Policy:  # noqa: F811
    return build_policy(TINY, corpus, seed=0)


@pytest.fixture(scope="session", params=["qwen3_vl", "qwen2_5_vl"])
def any_policy(request: pytest.FixtureRequest, tiny: Policy, qwen25_checkpoint: Path) -> Policy:  # noqa: F811
    return tiny if request.param == "qwen3_vl" else load_policy(qwen25_checkpoint)


@pytest.fixture
def make_engine() -> Iterator[Callable[..., Engine]]:
    """Engines that are closed when the test ends."""
    made: list[Engine] = []

    def make(policy: Policy, **options: Any) -> Engine:
        made.append(Engine(policy, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
