"""The loop to read: sampling with transformers' own cache."""

import torch
from PIL import Image

from cua_lab.policy.plain_sampling import sample
from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import Example, collate, masked_logits, policy_forward

from .test_policy import example_of


def test_greedy_answers_are_what_teacher_forcing_says(policy: Policy, noise: Image.Image) -> None:
    """With a cache and implicit positions the logits are silently off by 2.6."""
    prompts = [example_of(policy, noise), example_of(policy, Image.new("RGB", (64, 96), "red"))]
    for prompt, answer in zip(
        prompts, sample(policy, prompts, max_tokens=6, seed=0, temperature=0.0), strict=True
    ):
        whole = Example([*prompt.ids, *answer], prompt.pixels, prompt.grids)
        logits = policy_forward(policy, collate(policy, [whole]))[0, len(prompt.ids) - 1 : -1]
        allowed = masked_logits(logits, temperature=1.0, forbidden_ids=policy.forbidden_ids)
        assert allowed.argmax(-1).tolist() == answer


def test_the_seed_decides_and_nothing_forbidden_is_said(policy: Policy, noise) -> None:
    prompts = [example_of(policy, noise)] * 4
    first = sample(policy, prompts, max_tokens=8, seed=1)
    assert first == sample(policy, prompts, max_tokens=8, seed=1)
    assert first != sample(policy, prompts, max_tokens=8, seed=2)
    assert not {token for answer in first for token in answer} & set(policy.forbidden_ids)


def test_an_answer_ends_with_its_stop_token(policy: Policy, noise) -> None:
    """The stop token belongs to the answer: it carries loss."""
    stop = policy.stop_ids[0]
    with torch.no_grad():
        saved = policy.model.lm_head.weight.clone()
        policy.model.lm_head.weight[stop] = 0.0
        policy.model.lm_head.weight.mul_(1e-3)  # all ids alike: the stop comes soon
    answers = sample(policy, [example_of(policy, noise)] * 64, max_tokens=64, seed=0)
    with torch.no_grad():
        policy.model.lm_head.weight.copy_(saved)
    ended = [answer for answer in answers if stop in answer]
    assert ended
    assert all(answer.index(stop) == len(answer) - 1 for answer in ended)
