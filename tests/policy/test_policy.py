"""Checkpoints: plain Hugging Face folders of both families."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from cua_lab.errors import LabError
from cua_lab.policy.policy import Policy, load_policy
from cua_lab.policy.scoring import Example, collate, policy_forward
from cua_lab.policy.template import expand_images, image_part, render
from cua_lab.policy.vision import tokens_of

from .conftest import SYSTEM, TOOL


def example_of(policy: Policy, image: Image.Image) -> Example:
    pixels, grids = policy.vision.patchify(image)
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": [{"type": "text", "text": "Go."}, image_part(b"")]},
    ]
    ids = render(policy.tokenizer, messages, [TOOL])
    return Example(
        expand_images(ids, tokens_of(grids, policy.merge), policy.image_token_id), pixels, grids
    )


def test_a_saved_policy_comes_back_the_same(policy: Policy, noise, tmp_path: Path) -> None:
    again = load_policy(policy.save(tmp_path / "checkpoint"))
    assert again.family == "qwen3_vl"
    assert again.coordinate_space == "0-1000"
    assert again.forbidden_ids == policy.forbidden_ids
    assert again.stop_ids == policy.stop_ids
    before = policy_forward(policy, collate(policy, [example_of(policy, noise)]))
    after = policy_forward(again, collate(again, [example_of(again, noise)]))
    assert torch.equal(before, after)


def test_a_saved_policy_is_plain_hugging_face(policy: Policy, noise, tmp_path: Path) -> None:
    """transformers alone loads the folder, and its own layers give our logits."""
    from transformers import Qwen3VLForConditionalGeneration

    folder = policy.save(tmp_path / "checkpoint")
    names = {file.name for file in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= names
    plain = Qwen3VLForConditionalGeneration.from_pretrained(folder).eval()
    example = example_of(policy, noise)
    ids = torch.tensor([example.ids])
    with torch.no_grad():
        theirs = plain(
            input_ids=ids,
            mm_token_type_ids=(ids == policy.image_token_id).int(),
            pixel_values=torch.tensor(example.pixels),
            image_grid_thw=torch.tensor(example.grids),
        ).logits
        ours = policy_forward(policy, collate(policy, [example]))
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)


def test_a_qwen25_checkpoint_loads_and_agrees_with_transformers(qwen25_checkpoint, noise) -> None:
    from transformers import Qwen2_5_VLForConditionalGeneration

    policy = load_policy(qwen25_checkpoint)
    assert (policy.family, policy.coordinate_space) == ("qwen2_5_vl", "pixels")
    plain = Qwen2_5_VLForConditionalGeneration.from_pretrained(qwen25_checkpoint).eval()
    example = example_of(policy, noise)
    ids = torch.tensor([example.ids])
    with torch.no_grad():
        theirs = plain(
            input_ids=ids,
            mm_token_type_ids=(ids == policy.image_token_id).int(),
            pixel_values=torch.tensor(example.pixels),
            image_grid_thw=torch.tensor(example.grids),
        ).logits
        ours = policy_forward(policy, collate(policy, [example]))
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)


def test_image_pads_and_padded_rows_can_never_be_said(policy: Policy, qwen25_checkpoint) -> None:
    """A sampled `<|image_pad|>` asks the next forward for an image that nobody sent."""
    said = {policy.tokenizer.decode([i]) for i in policy.forbidden_ids}
    assert said == {"<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"}
    padded = load_policy(qwen25_checkpoint)
    assert set(range(len(padded.tokenizer), padded.vocab_size)) <= set(padded.forbidden_ids)


@pytest.mark.parametrize(
    ("config", "expected"),
    [(None, "no config.json"), ({"model_type": "llama"}, "'llama'"), ({}, "type None")],
)
def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path, config, expected) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(LabError, match=expected):
        load_policy(tmp_path)
