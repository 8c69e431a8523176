"""The text model written out: states and gradients are the transformers module's."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from PIL import Image
from torch import nn

from cua_lab.policy import scoring
from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import Example, collate, score
from cua_lab.policy.text_forward import writes_out

from .test_policy import example_of


def scored(policy: Policy, examples: list[Example]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    batch = collate(policy, examples)
    loss_mask = torch.zeros_like(batch.ids, dtype=torch.bool)
    for row, length in enumerate(batch.lengths):
        loss_mask[row, length - 3 - row : length] = True
        loss_mask[row, 2 + row] = True
    policy.model.zero_grad()
    logprobs = score(policy, batch, loss_mask).logprobs[loss_mask]
    (logprobs * torch.linspace(-1, 2, len(logprobs))).sum().backward()
    found = {n: p.grad.clone() for n, p in policy.model.named_parameters() if p.grad is not None}
    policy.model.zero_grad()
    return logprobs.detach(), found


def test_scores_and_gradients_are_the_modules(
    policy: Policy, noise: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = example_of(policy, noise)
    examples = [first, Example([*first.ids, 7, 8, 9], first.pixels, first.grids)]
    assert writes_out(policy.model)
    ours = scored(policy, examples)
    monkeypatch.setattr(scoring, "writes_out", lambda model: False)
    theirs = scored(policy, examples)
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=0)
    assert ours[1].keys() == theirs[1].keys()
    for name, gradient in theirs[1].items():
        limit = 1e-5 * max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(ours[1][name], gradient, atol=limit, rtol=0, msg=name)


def test_members_of_a_group_are_computed_once_where_they_are_alike(
    policy: Policy, noise: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal rows, rows that part ways, rows of another picture, and one without any."""
    one, other = example_of(policy, noise), example_of(policy, noise.rotate(90))
    examples = [
        one,
        Example([5, 6, 7, 8, 9, 10, 11], [], []),
        Example([*one.ids, 7, 8, 9], one.pixels, one.grids),
        Example([*one.ids, 7, 9], one.pixels, one.grids),
        other,
        one,
    ]
    batch = collate(policy, examples)
    assert len(batch.shared.first) < sum(batch.lengths)
    ours = scored(policy, examples)
    monkeypatch.setattr(scoring, "writes_out", lambda model: False)
    theirs = scored(policy, examples)
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=0)
    for name, gradient in theirs[1].items():
        limit = 1e-5 * max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(ours[1][name], gradient, atol=limit, rtol=0, msg=name)


def test_rows_without_images_are_scored_too(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Example([5, 6, 7, 8, 9, 10, 11], [], [])
    ours = scored(policy, [text])[0]
    monkeypatch.setattr(scoring, "writes_out", lambda model: False)
    torch.testing.assert_close(ours, scored(policy, [text])[0], atol=1e-5, rtol=0)


def test_an_adapter_or_a_checkpointed_network_is_left_to_the_module(policy: Policy) -> None:
    text = policy.model.model.language_model
    plain = text.layers[0].mlp.up_proj
    try:
        text.layers[0].mlp.up_proj = nn.Sequential(plain)
        assert not writes_out(policy.model)
    finally:
        text.layers[0].mlp.up_proj = plain
    text.gradient_checkpointing = True
    try:
        assert not writes_out(policy.model)
    finally:
        text.gradient_checkpointing = False
    assert writes_out(dataclasses.replace(policy).model)
