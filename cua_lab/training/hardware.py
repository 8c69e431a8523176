"""What training a policy takes of a card: memory by part, and seconds from stated assumptions.

    network's configuration + recipe ──▶ parts in bytes ──▶ does it fit, how long is a step

Weights, gradients and optimizer are counted from the network itself, built without memory (torch's
meta device). Activations are measured: one layer of the real size runs on a few tokens, and what
autograd keeps is counted and scaled. Invariant: no figure of a table is written down here but the
cards' data sheets and the two shares in `Assumed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cua_lab.policy.scoring import HEAD_BYTES
from cua_lab.recipes.trainer_settings import TrainerSettings

TOKENS = 128
"""Of the trial with one layer; what it keeps is proportional from 64 on."""
HEAD_COPIES = 4
"""Logits, masked, log-softmax, and their gradient."""
PATCHES_PER_TOKEN = 4
"""Of the vision tower for one image token: 2 by 2 are merged."""


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU's data sheet."""

    name: str
    gib: float
    tflops: float
    """bfloat16, dense."""
    gb_per_s: float


CARDS = (
    Card("RTX 4090", 24, 165, 1008),
    Card("H100 SXM", 80, 989, 3350),
    Card("H200", 141, 989, 4800),
)


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is not known before a run."""

    of_peak: float = 0.3
    """Share of the card's arithmetic that training reaches."""
    of_bandwidth: float = 0.5
    """Share of its bandwidth that decoding reaches."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one process, by part."""

    parameters: int
    learning: int
    parts: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())


def real_config(size: str) -> Any:  # Qwen3VLConfig
    """Qwen3-VL's published shapes, `2b` and `4b`; `tiny` has all of their parts and few weights."""
    from transformers import Qwen3VLConfig

    hidden, layers, mlp, heads = {
        "tiny": (64, 2, 128, 8),
        "2b": (2048, 28, 6144, 16),
        "4b": (2560, 36, 9728, 32),
    }[size]
    depth, wide, taps = (2, 64, [0]) if size == "tiny" else (24, 1024, [5, 11, 17])
    return Qwen3VLConfig(
        text_config={
            "vocab_size": 151936,
            "hidden_size": hidden,
            "intermediate_size": mlp,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e6,
                "mrope_section": [24, 20, 20],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": depth,
            "hidden_size": wide,
            "intermediate_size": 4 * wide,
            "num_heads": wide // 64 or 1,
            "out_hidden_size": hidden,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": taps,
        },
        tie_word_embeddings=True,
    )


def memory_of(
    config: Any, settings: TrainerSettings, *, tokens: int, image_share: float = 0.3
) -> Memory:
    """What one process holds while it trains on `tokens` padded tokens in a forward pass, of which
    `image_share` are images."""
    network = _without_memory(config)
    count = sum(p.numel() for p in network.parameters())
    learning = count if settings.lora is None else _adapter_weights(network, settings)
    half = settings.precision == "bfloat16"
    stored = 2 if half and settings.lora is not None else 4
    kept = _activations(config, settings, tokens, image_share)
    parts = {
        "weights": count * stored,
        "their bfloat16 copies": count * 2 if half and settings.lora is None else 0,
        "adapters": 0 if settings.lora is None else learning * 4,
        "gradients": learning * 4,
        "AdamW": learning * 8,
        "activations": kept,
        "logits": HEAD_COPIES * min(HEAD_BYTES, tokens * config.text_config.vocab_size * 4),
    }
    return Memory(count, learning, {name: size for name, size in parts.items() if size})


def step_seconds(
    config: Any,
    card: Card,
    settings: TrainerSettings,
    *,
    trained: int,
    sampled: int,
    at_once: int,
    assumed: Assumed = Assumed(),
) -> dict[str, float]:
    """Seconds of one GRPO step on the GPU alone, the env's own time left out.

    Training multiplies each weight with each of `trained` tokens twice forward, twice for the
    gradient of activations, twice again where they are recomputed, and twice for the gradient of
    weights that learn. Decoding reads all weights once for each of `sampled / at_once` tokens.
    """
    network = _without_memory(config)
    count = sum(p.numel() for p in network.parameters())
    train = passes_of(settings) * count * trained / (assumed.of_peak * card.tflops * 1e12)
    prefill = 2 * count * trained / (assumed.of_peak * card.tflops * 1e12)
    decode = 2 * count * (sampled / at_once) / (assumed.of_bandwidth * card.gb_per_s * 1e9)
    return {"prefill": prefill, "decode": decode, "train": train}


def passes_of(settings: TrainerSettings) -> int:
    """Operations for each weight and token of training, as `step_seconds` says."""
    return 4 + 2 * settings.gradient_checkpointing + 2 * (settings.lora is None)


def saved_bytes(run: Callable[[], Any], own: nn.Module) -> int:
    """What autograd keeps for the backward pass of `run`, weights of `own` left out."""
    weights = {p.untyped_storage().data_ptr() for p in own.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = run()
    del result
    return sum(kept.values())


def _without_memory(config: Any) -> nn.Module:
    from transformers import Qwen3VLForConditionalGeneration

    with torch.device("meta"):
        network = Qwen3VLForConditionalGeneration(config)
    network.tie_weights()
    return network


def _adapter_weights(network: nn.Module, settings: TrainerSettings) -> int:
    """An adapter of rank r beside a layer of a x b has r (a + b) weights."""
    assert settings.lora is not None
    return sum(
        settings.lora.r * (module.in_features + module.out_features)
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear)
        and name.rpartition(".")[2] in settings.lora.targets
        and (settings.lora.vision or "visual" not in name)
    )


def _activations(config: Any, settings: TrainerSettings, tokens: int, image_share: float) -> int:
    """With checkpointing one layer's insides at a time and the input of each; else all layers'."""
    half = settings.precision == "bfloat16"
    width = 2 if half and settings.lora is not None else 4
    text, vision = config.text_config, config.vision_config
    patches = int(tokens * image_share * PATCHES_PER_TOKEN)
    inside = _text_layer(config, half) * tokens // TOKENS
    inside_vision = _vision_block(config, half) * patches // TOKENS
    inputs = text.num_hidden_layers * tokens * text.hidden_size * width
    inputs_vision = vision.depth * patches * vision.hidden_size * width
    if settings.gradient_checkpointing:
        return int(max(inside, inside_vision) + inputs + inputs_vision)
    return int(inside * text.num_hidden_layers + inside_vision * vision.depth)


def _text_layer(config: Any, half: bool) -> int:
    """Bytes that one decoder layer keeps of `TOKENS` tokens."""
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextDecoderLayer

    text = config.text_config
    text._attn_implementation = "sdpa"
    layer = Qwen3VLTextDecoderLayer(text, 0)
    angles = torch.zeros(1, TOKENS, text.head_dim)
    states = torch.zeros(1, TOKENS, text.hidden_size, requires_grad=True)
    return _kept(lambda: layer(states, position_embeddings=(angles, angles)), layer, half)


def _vision_block(config: Any, half: bool) -> int:
    """Bytes that one vision block keeps of `TOKENS` patches."""
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionBlock

    vision = config.vision_config
    vision._attn_implementation = "sdpa"
    block = Qwen3VLVisionBlock(vision)
    angles = torch.zeros(TOKENS, vision.hidden_size // vision.num_heads)
    states = torch.zeros(TOKENS, vision.hidden_size, requires_grad=True)
    ends = torch.tensor([0, TOKENS], dtype=torch.int32)
    return _kept(
        lambda: block(states, cu_seqlens=ends, position_embeddings=(angles, angles)), block, half
    )


def _kept(run: Callable[[], Any], own: nn.Module, half: bool) -> int:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half, cache_enabled=False):
        whole = saved_bytes(run, own)
    if not half:
        return whole
    # Without a cache each product keeps a bfloat16 copy of its weight, which is counted elsewhere.
    matrices = sum(m.weight.numel() for m in own.modules() if isinstance(m, nn.Linear))
    return whole - 2 * matrices
