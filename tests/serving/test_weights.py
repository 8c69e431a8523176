"""Weights that change under the engine are noticed, however they were changed."""

import pytest
import torch

from cua_lab.engine.decoder import Decoder
from cua_lab.policy.policy import Policy, build_policy
from cua_lab.policy.shape import Shape
from cua_lab.policy.tokenizer import Corpus


@pytest.fixture(scope="module")
def policy() -> Policy:
    shape = Shape(hidden=32, layers=1, vision_hidden=32, vision_depth=1)
    return build_policy(shape, Corpus(("click the red button",) * 2), seed=0)


@pytest.mark.parametrize("fused", [False, True])
def test_an_optimizer_step_makes_the_decoders_copy_stale(policy: Policy, fused: bool) -> None:
    """torch's fused AdamW leaves version counters alone; a warm-up once went unseen that way."""
    decoder = Decoder(policy.model)
    assert not decoder.stale()
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-3, fused=fused)
    for parameter in policy.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert decoder.stale()
    decoder.refresh()
    assert not decoder.stale()
