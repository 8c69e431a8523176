"""The loop to read draws what the engine draws."""

import asyncio
import io

import pytest

from cua_lab.demonstrators.demos import ClickPlayer
from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import Choice, GenerationRequest
from cua_lab.engine.token_sampling import SamplingParams
from cua_lab.lessons.loops.click_task import FRESH
from cua_lab.lessons.loops.decode import decode
from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import Example, collate, score
from cua_lab.policy.template import encode, render
from cua_lab.training.warmup import make_prompt


def engine_says(policy: Policy, player: ClickPlayer, start: int, params: SamplingParams) -> Choice:
    demo = player(start)
    png = io.BytesIO()
    demo.images[0].save(png, "PNG")
    engine = Engine(policy)
    try:
        prompt = engine.prompt(
            render(policy.tokenizer, demo.messages[:-1], demo.tools), [png.getvalue()]
        )
        (choice,) = asyncio.run(engine.complete(GenerationRequest(prompt, params))).choices
        return choice
    finally:
        engine.close()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_ids_are_those_of_the_engine_and_the_log_probabilities_agree(
    warm: Policy, player: ClickPlayer, temperature: float
) -> None:
    for seed in range(4):
        start = FRESH + seed
        answer = decode(
            warm,
            make_prompt(warm, player(start)),
            max_tokens=24,
            seed=seed,
            temperature=temperature,
        )
        params = SamplingParams(max_tokens=24, seed=seed, temperature=temperature)
        choice = engine_says(warm, player, start, params)
        assert answer.ids == choice.ids
        assert answer.logprobs == pytest.approx(choice.logprobs, abs=1e-4)


def test_the_cache_changes_nothing(warm: Policy, player: ClickPlayer) -> None:
    """Every log-probability is that of the whole sequence, run through the model at once."""
    prompt = make_prompt(warm, player(FRESH))
    answer = decode(warm, prompt, max_tokens=24, seed=1)
    batch = collate(warm, [Example([*prompt.ids, *answer.ids], prompt.pixels, prompt.grids)])
    mask = batch.ids.new_zeros(batch.ids.shape, dtype=bool)
    mask[0, len(prompt.ids) :] = True
    assert answer.logprobs == pytest.approx(
        score(warm, batch, mask).logprobs[mask].tolist(), abs=1e-4
    )


def test_an_answer_ends_with_the_stop_token_or_at_the_limit(
    warm: Policy, player: ClickPlayer
) -> None:
    prompt = make_prompt(warm, player(FRESH))
    (end,) = encode(warm.tokenizer, "<|im_end|>")
    assert decode(warm, prompt, max_tokens=32, seed=0).ids[-1] == end
    assert len(decode(warm, prompt, max_tokens=3, seed=0).ids) == 3
