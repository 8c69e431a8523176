"""One tiny policy and one tiny checkpoint of each family, built once a run."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cua_lab.policy.policy import Policy, build_policy
from cua_lab.policy.shape import Shape
from cua_lab.policy.template import render_text
from cua_lab.policy.tokenizer import Corpus, phrases_of, train_tokenizer
from tests.support_calls import call_text
from tests.support_qwen25 import save_qwen25

TINY = Shape(hidden=32, layers=2, vision_hidden=32, mlp_ratio=2)
SYSTEM = "You drive a screen. Turns are scarce, keystrokes are not."
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "computer",
        "description": "Click, type or take a screenshot.",
        "parameters": {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["click", "press", "type"]},
                "x": {"type": "integer"},
                "y": {"type": "integer"},
                "keys": {"type": "array", "items": {"type": "string"}},
                "text": {"type": "string"},
            },
            "required": ["action"],
        },
    },
}


def make_corpus() -> Corpus:
    draw = random.Random(0)
    keys = ["left", "right", "up", "down"]
    calls = [
        {"action": "click", "x": draw.randrange(1000), "y": draw.randrange(1000)} for _ in range(40)
    ] + [{"action": "press", "keys": draw.choices(keys, k=1 + i % 6)} for i in range(40)]
    talk = [
        "<|im_start|>user\nClick the red button.<|vision_start|><|image_pad|><|vision_end|>"
        f"<|im_end|>\n<|im_start|>assistant\n{call_text('computer', call)}<|im_end|>\n"
        for call in calls
    ]
    bare = train_tokenizer(Corpus(()))
    system = render_text(bare, [{"role": "system", "content": SYSTEM}], [TOOL])
    return Corpus(tuple(talk), phrases_of([system]))


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return make_corpus()


@pytest.fixture(scope="session")
def policy(corpus: Corpus) -> Policy:
    return build_policy(TINY, corpus, seed=0)


@pytest.fixture(scope="session")
def noise() -> Image.Image:
    """A 128 px screen in which every byte value occurs."""
    values = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    return Image.fromarray(values)


@pytest.fixture(scope="session")
def qwen25_checkpoint(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_qwen25(tmp_path_factory.mktemp("qwen25"), train_tokenizer(corpus), hidden=32)
