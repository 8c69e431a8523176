"""A random Qwen2.5-VL as transformers saves one: nothing of this package is in it but its words."""

import json
from pathlib import Path
from typing import Any

TOKENS = ("image_pad", "video_pad", "vision_start", "vision_end")
PREPROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


def save_qwen25(folder: Path, tokenizer: Any, *, hidden: int) -> Path:
    """Two layers on either side, the older preprocessor keys, matrices padded as real ones are."""
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    half = hidden // 4  # of a head of hidden / 2: what the three kinds of position share
    text = {
        "vocab_size": len(tokenizer) + 7,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 4096,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_section": [half // 2, half // 4, half // 4],
        },
        "use_sliding_window": False,
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": hidden,
        "fullatt_block_indexes": [1],
    }
    ids = {
        f"{name.removesuffix('_pad')}_token_id": tokenizer.convert_tokens_to_ids(f"<|{name}|>")
        for name in TOKENS
    }
    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids)
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR), encoding="utf-8")
    return folder
