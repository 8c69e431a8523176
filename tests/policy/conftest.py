"""One tiny policy and one tiny checkpoint of each family, built once a run."""

import json
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
    """A random Qwen2.5-VL as it lies on disk: plain transformers, the older preprocessor keys."""
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    tokenizer = train_tokenizer(corpus)
    ids = tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer) + 7,  # real checkpoints pad their matrices
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [4, 2, 2],
            },
            "use_sliding_window": False,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 32,
            "fullatt_block_indexes": [1],
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
    )
    folder = tmp_path_factory.mktemp("qwen25")
    torch.manual_seed(0)
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    preprocessor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "min_pixels": 3136,
        "max_pixels": 12845056,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor), encoding="utf-8")
    return folder
