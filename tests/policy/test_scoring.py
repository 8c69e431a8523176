"""Teacher forcing."""

from collections.abc import Callable

import pytest
import torch
from PIL import Image, ImageDraw

from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import Example, collate, masked_logits, policy_forward, score

from .test_policy import example_of


@pytest.fixture
def examples(policy: Policy, noise: Image.Image) -> list[Example]:
    """Two of one length that share an image, one longer with another image."""
    other = Image.new("RGB", (96, 160), "white")
    ImageDraw.Draw(other).rectangle((8, 8, 40, 40), fill="red")
    first, third = example_of(policy, noise), example_of(policy, other)
    return [first, first, Example([*third.ids, 7, 8, 9], third.pixels, third.grids)]


def test_padding_and_company_do_not_change_logits(policy: Policy, examples) -> None:
    together = policy_forward(policy, collate(policy, examples))
    for row, example in enumerate(examples):
        alone = policy_forward(policy, collate(policy, [example]))[0]
        torch.testing.assert_close(together[row, : len(example.ids)], alone, atol=1e-5, rtol=0)


def test_a_common_screenshot_is_encoded_once(policy: Policy, examples) -> None:
    batch = collate(policy, examples)
    assert batch.image_index == (0, 0, 1)
    assert batch.grids.shape == (2, 3)


def test_changing_the_pixels_changes_the_logits(policy: Policy, examples) -> None:
    """agent-lightning#560: images never reached training, and the loss still fell."""
    first = examples[0]
    blank = Example(first.ids, first.pixels * 0, first.grids)
    seen, unseen = (policy_forward(policy, collate(policy, [e])) for e in (first, blank))
    assert float((seen - unseen)[0, -1].abs().max().detach()) > 1e-3


def test_gradients_reach_every_parameter(policy: Policy, examples) -> None:
    batch = collate(policy, examples)
    loss_mask = torch.zeros_like(batch.ids, dtype=torch.bool)
    loss_mask[:, -2:] = True
    policy.model.zero_grad()
    score(policy, batch, loss_mask).logprobs[loss_mask].sum().backward()
    untouched = [n for n, p in policy.model.named_parameters() if p.grad is None]
    policy.model.zero_grad()
    assert untouched == []


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_scores_are_of_the_distribution_that_is_sampled_from(
    policy: Policy, examples, temperature: float
) -> None:
    """Without the temperature the first ratio was 2.0 at T = 0.6 (trl#4159)."""
    batch = collate(policy, examples)
    loss_mask = torch.zeros_like(batch.ids, dtype=torch.bool)
    loss_mask[2, -3:] = True
    got = score(policy, batch, loss_mask, temperature=temperature)
    logits = policy_forward(policy, batch)[2, -4:-1].detach().double() / temperature
    logits[:, list(policy.forbidden_ids)] = -torch.inf
    expected = torch.log_softmax(logits, -1)
    chosen = expected.gather(-1, batch.ids[2, -3:, None])[:, 0]
    torch.testing.assert_close(got.logprobs[loss_mask].double(), chosen, atol=1e-5, rtol=0)
    entropy = torch.distributions.Categorical(logits=logits).probs
    entropy = -(entropy * entropy.clamp(min=1e-300).log()).sum(-1)
    torch.testing.assert_close(got.entropy[loss_mask].double(), entropy, atol=1e-5, rtol=0)
    assert torch.isnan(got.logprobs[~loss_mask]).all()


def test_a_forbidden_token_scores_minus_infinity(policy: Policy) -> None:
    logits = masked_logits(
        torch.zeros(2, policy.vocab_size), temperature=1.0, forbidden_ids=policy.forbidden_ids
    )
    assert torch.isinf(logits[:, policy.image_token_id]).all()


def test_the_first_token_has_no_score(policy: Policy, examples) -> None:
    batch = collate(policy, examples)
    with pytest.raises(ValueError, match="token 0"):
        score(policy, batch, torch.ones_like(batch.ids, dtype=torch.bool))


def test_the_same_batch_gives_the_same_bits(policy: Policy, examples) -> None:
    run: Callable[[], torch.Tensor] = lambda: policy_forward(policy, collate(policy, examples))  # noqa: E731
    assert torch.equal(run(), run())
