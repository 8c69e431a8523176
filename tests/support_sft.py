"""A handful of drawn samples, a tiny policy, and a recipe for them."""

from pathlib import Path

from cua_lab.dataset.grounding import write_samples
from cua_lab.dataset.synthetic import targets_samples
from cua_lab.recipes.sft_recipe import SftRecipe, parse_sft_recipe
from cua_lab.run.sft_job import prepare

SIZE = (96, 96)
TINY = """
policy: {hidden: 32, layers: 2, vision_hidden: 32, grid_side: 6}
model: {device: cpu}
ask: {system: short, actions: [click]}
train: {steps: 4, batch: 4, lr: 5e-3, checkpoint_every: 2, measure_every: 2}
"""


def recipe(*overrides: str) -> SftRecipe:
    return parse_sft_recipe(TINY, overrides=overrides)


def draw(folder: Path, count: int = 12, seed: int = 0) -> Path:
    """samples.jsonl with its screenshots."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "samples.jsonl"
    write_samples(path, targets_samples(folder, count, seed=seed, levels=(1,), sizes=(SIZE,)))
    return path


def trainer(file: Path, *overrides: str):
    """(Finetune, PromptFormat, Adapter | None) of the tiny recipe."""
    return prepare(recipe(*overrides), file)


NO_TOOLS = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Qwen2.5-VL's own template, shortened: it knows neither tools nor calls."""


def qwen25(folder: Path) -> Path:
    """A tiny Qwen2.5-VL with random weights and a template like its own."""
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    from cua_lab.policy.tokenizer import Corpus, train_tokenizer
    from cua_lab.policy.vision import QWEN2_5_VL, build_processor

    tokenizer = train_tokenizer(Corpus(("click the red button",) * 2))
    tokenizer.chat_template = NO_TOOLS
    ids = tokenizer.convert_tokens_to_ids
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]}
    layers = {"hidden_size": 32, "intermediate_size": 64}
    config = Qwen2_5_VLConfig(
        text_config=layers
        | {
            "vocab_size": len(tokenizer),
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_parameters": rope,
            "use_sliding_window": False,
        },
        vision_config=layers
        | {"depth": 2, "num_heads": 2, "out_hidden_size": 32, "fullatt_block_indexes": [1]},
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
    )
    torch.manual_seed(0)
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    build_processor(QWEN2_5_VL).save_pretrained(folder)
    return folder
