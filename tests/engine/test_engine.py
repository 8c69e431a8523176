"""The engine says what transformers would say, whatever it reused and whoever else was served."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import Generation, GenerationRequest
from cua_lab.engine.token_sampling import SamplingParams
from cua_lab.errors import LabError
from cua_lab.policy.policy import Policy, build_policy
from cua_lab.policy.scoring import Example, collate, score
from cua_lab.policy.tokenizer import Corpus
from tests.serving.conftest import TINY, gap, screen, teacher_forced, words

Make = Callable[..., Engine]


def ask(engine: Engine, ids: Sequence[int], images: Sequence[bytes] = (), **options: Any) -> Any:
    """A request; options of the sampling and of the request mixed."""
    own = {k: options.pop(k) for k in ("n", "top", "score_from", "slot") if k in options}
    params = SamplingParams(**({"max_tokens": 8, "seed": 1} | options))
    return GenerationRequest(engine.prompt(ids, images), params, **own)


def complete(engine: Engine, *requests: GenerationRequest) -> list[Generation]:
    """All at once."""

    async def run() -> list[Generation]:
        return list(await asyncio.gather(*(engine.complete(r) for r in requests)))

    return asyncio.run(run())


def opening(policy: Policy, seed: int) -> tuple[list[int], list[bytes]]:
    """A first turn: text, a screen, text; lengths and screens differ."""
    pad = policy.image_token_id
    ids = [*words(policy, seed, 5 + seed % 4), pad, *words(policy, seed + 50, 3)]
    return ids, [screen(seed, 64 + 32 * (seed % 2))]


def next_turn(
    policy: Policy, ids: Sequence[int], generation: Generation, seed: int
) -> tuple[list[int], bytes]:
    """What a harness makes of an answer: the same ids, then a scaffold with a new screen."""
    said = list(generation.choices[0].ids)
    tail = [*words(policy, seed + 7, 4), policy.image_token_id, *words(policy, seed + 9, 2)]
    return [*ids, *said, *tail], screen(seed + 1000, 96)


@pytest.mark.parametrize("reuse", [True, False], ids=["prefix reused", "nothing reused"])
@pytest.mark.parametrize("batch", [1, 8])
def test_log_probabilities_are_those_of_teacher_forcing(
    any_policy: Policy, make_engine: Make, batch: int, reuse: bool
) -> None:
    """Three turns with a new screen each: positions, deepstack and KV are all in play.

    A cached prefix with implicit positions is off by 2.6 in transformers, without an error.
    """
    engine = make_engine(any_policy, cache_mib=64 if reuse else 0)
    turns = [opening(any_policy, seed) for seed in range(batch)]
    for turn in range(3):
        requests = [ask(engine, ids, images, seed=s) for s, (ids, images) in enumerate(turns)]
        for s, generation in enumerate(complete(engine, *requests)):
            said = generation.choices[0].logprobs
            assert gap(said, teacher_forced(any_policy, generation)) < 1e-5
            ids, image = next_turn(any_policy, turns[s][0], generation, 10 * turn + s)
            turns[s] = ids, [*turns[s][1], image]
    assert (engine.stats.cached_tokens > 0) == reuse


def test_training_finds_the_very_numbers_that_were_sampled_by(
    tiny: Policy, make_engine: Make
) -> None:
    """Screens of one size, as in a run, where float32's attention left up to 2e-5 between them."""
    engine = make_engine(tiny)
    turns = [(opening(tiny, s // 2)[0], [screen(s // 2, 128)]) for s in range(4)]
    requests = [ask(engine, *turns[s], seed=s, max_tokens=6 + s) for s in range(4)]
    for s, generation in enumerate(complete(engine, *requests)):
        ids, _ = next_turn(tiny, turns[s][0], generation, s)
        turns[s] = ids, [*turns[s][1], screen(s + 9, 128)]
    requests = [ask(engine, *turns[s], seed=s, max_tokens=6 + s) for s in range(4)]
    found = complete(engine, *requests)
    said, scored = sampled_and_scored(tiny, found)
    tolerance = 0.0 if torch.backends.mkl.is_available() else 1e-5
    assert gap(said, scored) <= tolerance


def sampled_and_scored(
    policy: Policy, generations: Sequence[Generation]
) -> tuple[list[float], list[float]]:
    """The engine's log-probabilities of all that was said, and training's."""
    examples = []
    for generation in generations:
        prompt = generation.prompt
        pixels = np.concatenate([image.pixel_values for image in prompt.images])
        grids = np.concatenate([image.grid_thw for image in prompt.images])
        examples.append(Example([*prompt.ids, *generation.choices[0].ids], pixels, grids))
    batch = collate(policy, examples)
    loss_mask = torch.zeros_like(batch.ids, dtype=torch.bool)
    for row, generation in enumerate(generations):
        loss_mask[row, len(generation.prompt) : batch.lengths[row]] = True
    with torch.no_grad():
        scores = score(policy, batch, loss_mask, float64_attention=True)
        scored = scores.logprobs[loss_mask].tolist()
    return [value for g in generations for value in g.choices[0].logprobs], scored


def test_log_probabilities_are_of_the_tempered_distribution(
    tiny: Policy, make_engine: Make
) -> None:
    """Scoring without the temperature made the first ratio 2.0 (trl#4159)."""
    engine = make_engine(tiny)
    ids, images = opening(tiny, 3)
    for temperature in (0.6, 1.7):
        (generation,) = complete(
            engine, ask(engine, ids, images, temperature=temperature, top_p=0.8)
        )
        truth = teacher_forced(tiny, generation, temperature)
        assert gap(generation.choices[0].logprobs, truth) < 1e-5
    (greedy,) = complete(engine, ask(engine, ids, images, temperature=0.0))
    assert gap(greedy.choices[0].logprobs, teacher_forced(tiny, greedy)) < 1e-5


def test_a_turn_costs_its_new_tokens_only(tiny: Policy, make_engine: Make) -> None:
    engine = make_engine(tiny)
    ids, images = opening(tiny, 0)
    (first,) = complete(engine, ask(engine, ids, images))
    ids, image = next_turn(tiny, ids, first, 0)
    before = engine.stats.prefill_tokens
    request = ask(engine, ids, [*images, image])
    (second,) = complete(engine, request)
    known = len(first.prompt) + len(first.choices[0].ids) - 1  # its last token was never fed
    assert second.cached_tokens == known
    assert engine.stats.prefill_tokens - before == len(request.prompt) - known
    assert engine.stats.images_encoded == 2


def test_a_prefix_ends_before_an_image_that_changed(tiny: Policy, make_engine: Make) -> None:
    """The ids are the same: only the pixels say that the cached keys are wrong."""
    engine = make_engine(tiny)
    ids, _ = opening(tiny, 0)
    complete(engine, ask(engine, ids, [screen(1)]))
    (other,) = complete(engine, ask(engine, ids, [screen(2)]))
    assert other.cached_tokens == ids.index(tiny.image_token_id)
    assert gap(other.choices[0].logprobs, teacher_forced(tiny, other)) < 1e-5


def test_a_group_prefills_its_common_prompt_once(tiny: Policy, make_engine: Make) -> None:
    engine = make_engine(tiny)
    ids, images = opening(tiny, 0)
    requests = [ask(engine, ids, images, seed=seed) for seed in range(8)]
    generations = complete(engine, *requests)
    assert engine.stats.batches == 1
    assert engine.stats.prefill_tokens == len(requests[0].prompt)
    assert len({g.choices[0].ids for g in generations}) > 1
    for generation in generations:
        assert gap(generation.choices[0].logprobs, teacher_forced(tiny, generation)) < 1e-5


def test_a_prefix_shared_by_different_prompts_is_prefilled_once(
    tiny: Policy, make_engine: Make
) -> None:
    """The system prompt of a batch of different tasks, on a cold cache."""
    engine = make_engine(tiny)
    system = words(tiny, 0, 60)
    prompts = [[*system, *words(tiny, seed, 4)] for seed in range(1, 5)]
    generations = complete(engine, *(ask(engine, ids) for ids in prompts))
    assert engine.stats.prefill_tokens == 60 + 4 * 4
    for generation in generations:
        assert gap(generation.choices[0].logprobs, teacher_forced(tiny, generation)) < 1e-5


def test_what_a_row_says_depends_on_its_seed_and_prompt_and_not_on_the_company(
    tiny: Policy, make_engine: Make
) -> None:
    """One episode at a time or eight together, over three turns: the same tokens.

    With MKL the log-probabilities are the same to the last bit, too; elsewhere nearly so.
    """
    together, alone = make_engine(tiny), make_engine(tiny)
    turns = [opening(tiny, seed // 2) for seed in range(8)]
    tolerance = 0.0 if torch.backends.mkl.is_available() else 1e-5
    for turn in range(3):
        options = [{"seed": 100 * turn + s, "max_tokens": 5 + s} for s in range(8)]
        requests = [ask(together, *turns[s], **options[s]) for s in range(8)]
        for s, batched in enumerate(complete(together, *requests)):
            (single,) = complete(alone, ask(alone, *turns[s], **options[s]))
            assert single.choices[0].ids == batched.choices[0].ids
            assert gap(single.choices[0].logprobs, batched.choices[0].logprobs) <= tolerance
            ids, image = next_turn(tiny, turns[s][0], single, 10 * turn + s)
            turns[s] = ids, [*turns[s][1], image]
    (other,) = complete(alone, ask(alone, *opening(tiny, 0), seed=99, max_tokens=5))
    (first,) = complete(alone, ask(alone, *opening(tiny, 0), seed=0, max_tokens=5))
    assert other.choices[0].ids != first.choices[0].ids


def test_a_forbidden_id_is_never_said_and_never_counted(tiny: Policy, make_engine: Make) -> None:
    """A sampled image pad crashes the next turn's processor; both sides mask the same list."""
    engine = make_engine(tiny)
    (generation,) = complete(
        engine, ask(engine, words(tiny, 0, 4), temperature=1e4, max_tokens=400, n=4, top=1000)
    )
    for choice in generation.choices:
        assert not set(choice.ids) & set(tiny.forbidden_ids)
        said = sum(2.718281828**lp for lp, id_ in choice.tops[0] if id_ not in tiny.forbidden_ids)
        assert said == pytest.approx(1.0, abs=1e-4)


def test_an_output_ends_with_its_stop_token_or_at_its_stop_string(
    tiny: Policy, make_engine: Make
) -> None:
    engine = make_engine(tiny)
    ids = words(tiny, 0, 6)
    (free,) = complete(engine, ask(engine, ids, ignore_eos=True, max_tokens=12))
    said = free.choices[0].ids
    assert (free.choices[0].finish, len(said)) == ("length", 12)
    token = said[3]
    (stopped,) = complete(engine, ask(engine, ids, stop_token_ids=(token,), ignore_eos=True))
    first = said.index(token)
    assert stopped.choices[0].ids == said[: first + 1]
    assert (stopped.choices[0].finish, stopped.choices[0].matched) == ("stop", token)
    text = engine.detokenizer.text(said[:5])[-2:]
    (cut,) = complete(engine, ask(engine, ids, stop=(text,), ignore_eos=True, max_tokens=12))
    assert cut.choices[0].matched == text
    assert said[: len(cut.choices[0].ids)] == cut.choices[0].ids
    assert text in engine.detokenizer.text(cut.choices[0].ids)


def test_a_request_for_no_tokens_scores_its_prompt(tiny: Policy, make_engine: Make) -> None:
    """Teacher forcing by the server: what it would have said of tokens that exist."""
    engine = make_engine(tiny)
    ids, images = opening(tiny, 0)
    (generation,) = complete(engine, ask(engine, ids, images))
    whole = [*ids, *generation.choices[0].ids]
    start = len(generation.prompt)
    (scored,) = complete(engine, ask(engine, whole, images, max_tokens=0, score_from=start))
    assert scored.choices[0].ids == ()
    assert gap(scored.prompt_logprobs, generation.choices[0].logprobs) < 1e-5


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(
    tiny: Policy, make_engine: Make
) -> None:
    engine = make_engine(tiny, context_length=32)
    with pytest.raises(LabError, match=r"The input \(40 tokens\) is longer .* \(32 tokens\)"):
        complete(engine, ask(engine, words(tiny, 0, 40)))
    with pytest.raises(LabError, match="total of 38 tokens: 30 tokens from"):
        complete(engine, ask(engine, words(tiny, 0, 30)))
    (rest,) = complete(engine, ask(engine, words(tiny, 0, 30), max_tokens=None, ignore_eos=True))
    assert len(rest.choices[0].ids) == 2


def test_ids_and_images_that_do_not_fit_are_refused_before_they_reach_the_model(
    tiny: Policy, make_engine: Make
) -> None:
    """An id beyond the vocabulary kills an sglang server; an expanded pad is a 500 or a hang."""
    engine = make_engine(tiny)
    with pytest.raises(LabError, match="vocabulary has ids 0 to"):
        engine.prompt([1, tiny.vocab_size])
    with pytest.raises(LabError, match="cannot be empty"):
        engine.prompt([])
    pad = tiny.image_token_id
    with pytest.raises(LabError, match="4 image tokens but 1 images"):
        engine.prompt([1, pad, pad, pad, pad], [screen(0)])


def test_new_weights_empty_the_caches_and_name_themselves(
    corpus: Corpus, make_engine: Make
) -> None:
    """Old keys with new weights gave sglang wrong output until `/flush_cache`."""
    policy = build_policy(TINY, corpus, seed=1)
    engine = make_engine(policy)
    ids, images = opening(policy, 0)
    complete(engine, ask(engine, ids, images))
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.05)
    engine.weights_updated("step-1")
    (after,) = complete(engine, ask(engine, ids, images))
    assert (after.cached_tokens, after.weight_version) == (0, "step-1")
    assert gap(after.choices[0].logprobs, teacher_forced(policy, after)) < 1e-5


def test_weights_changed_behind_the_engines_back_are_noticed(
    corpus: Corpus, make_engine: Make
) -> None:
    policy = build_policy(TINY, corpus, seed=1)
    engine = make_engine(policy)
    ids, images = opening(policy, 0)
    complete(engine, ask(engine, ids, images))
    with torch.no_grad():
        policy.model.model.visual.patch_embed.proj.weight.add_(0.1)
    (after,) = complete(engine, ask(engine, ids, images))
    assert after.cached_tokens == 0
    assert gap(after.choices[0].logprobs, teacher_forced(policy, after)) < 1e-5


def test_a_checkpoint_that_does_not_fit_leaves_the_old_weights(
    corpus: Corpus, make_engine: Make, qwen25_checkpoint: Path, tmp_path: Path
) -> None:
    policy = build_policy(TINY, corpus, seed=1)
    engine = make_engine(policy)
    request = ask(engine, words(policy, 0, 6))
    (before,) = complete(engine, request)
    for bad in (tmp_path / "nowhere", qwen25_checkpoint):
        with pytest.raises(LabError):
            engine.load_weights(bad, "bad")
    (after,) = complete(engine, request)
    assert after.choices[0].ids == before.choices[0].ids
    assert after.weight_version == "default"
    other = build_policy(TINY, corpus, seed=2)
    engine.load_weights(other.save(tmp_path / "good"), "step-7")
    (new,) = complete(engine, request)
    assert new.weight_version == "step-7"
    assert gap(new.choices[0].logprobs, teacher_forced(other, new)) < 1e-5


def test_a_round_waits_for_every_open_slot_and_runs_in_slot_order(
    tiny: Policy, make_engine: Make
) -> None:
    """The order of arrival is an accident of scheduling; the batch must not know it."""

    async def play(engine: Engine, order: Sequence[int]) -> list[Generation]:
        slots = engine.open_slots(4)
        requests = [ask(engine, *opening(tiny, s), seed=None, slot=s) for s in slots]
        tasks = {}
        for s in order:
            tasks[s] = asyncio.ensure_future(engine.complete(requests[s]))
            await asyncio.sleep(0.02)
            assert len(tasks) == 4 or engine.stats.batches == 0
        return [await tasks[s] for s in slots]

    one = asyncio.run(play(make_engine(tiny), (0, 1, 2, 3)))
    two = asyncio.run(play(make_engine(tiny), (2, 0, 3, 1)))
    assert [g.choices for g in one] == [g.choices for g in two]


def test_closing_a_slot_lets_the_others_go_on(tiny: Policy, make_engine: Make) -> None:
    engine = make_engine(tiny)

    async def play() -> Generation:
        first, second = engine.open_slots(2)
        task = asyncio.ensure_future(engine.complete(ask(engine, words(tiny, 0, 4), slot=first)))
        await asyncio.sleep(0.02)
        assert not task.done()
        engine.close_slot(second)
        return await asyncio.wait_for(task, 10)

    assert asyncio.run(play()).choices[0].ids
    with pytest.raises(LabError, match="slot 5, which is not open"):
        complete(engine, ask(engine, words(tiny, 0, 4), slot=5))


def test_a_client_that_went_away_does_not_hold_up_the_round(
    tiny: Policy, make_engine: Make
) -> None:
    """Waiting or running: its row is dropped, and the others do not wait for its slot."""
    engine = make_engine(tiny)

    async def play() -> None:
        first, second = engine.open_slots(2)
        gone = asyncio.ensure_future(engine.complete(ask(engine, words(tiny, 0, 4), slot=first)))
        await asyncio.sleep(0.02)
        gone.cancel()
        stays = ask(engine, words(tiny, 1, 4), slot=second)
        await asyncio.wait_for(engine.complete(stays), 10)
        long = ask(engine, words(tiny, 2, 4), slot=first, ignore_eos=True, max_tokens=4000)
        running = asyncio.ensure_future(engine.complete(long))
        other = asyncio.ensure_future(engine.complete(stays))
        while not engine.stats.decode_tokens > 40:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait_for(other, 10)
        assert engine.stats.decode_tokens < 3000

    asyncio.run(play())


def test_a_round_larger_than_the_largest_batch_is_split_in_order(
    tiny: Policy, make_engine: Make
) -> None:
    engine = make_engine(tiny, max_batch=3)
    generations = complete(engine, *(ask(engine, words(tiny, s, 5), seed=s) for s in range(7)))
    assert engine.stats.batches == 3
    for generation in generations:
        assert gap(generation.choices[0].logprobs, teacher_forced(tiny, generation)) < 1e-5


def test_the_prefix_cache_keeps_to_its_memory(tiny: Policy, make_engine: Make) -> None:
    engine = make_engine(tiny, cache_mib=1)
    for seed in range(30):
        complete(engine, ask(engine, words(tiny, seed, 100)))
    assert 0 < engine._cache.bytes <= 2**20
    assert len(engine._cache) < 30


def test_closing_the_engine_cancels_what_waits_and_what_runs(
    tiny: Policy, make_engine: Make
) -> None:
    engine = make_engine(tiny)

    async def play() -> None:
        engine.open_slots(2)
        waits = asyncio.ensure_future(engine.complete(ask(engine, words(tiny, 0, 4), slot=0)))
        endless = ask(engine, words(tiny, 1, 4), ignore_eos=True, max_tokens=4000)
        runs = asyncio.ensure_future(engine.complete(endless))
        while not engine.stats.decode_tokens:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(engine.close)
        for task in (waits, runs):
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 10)
        with pytest.raises(LabError, match="closed"):
            await engine.complete(endless)

    asyncio.run(play())


def test_a_slot_that_does_not_ask_holds_up_its_siblings_for_its_limit_only(
    tiny: Policy, make_engine: Make
) -> None:
    """A hung grader: its slot is open and silent."""
    engine = make_engine(tiny)

    async def play() -> Generation:
        first, _ = engine.open_slots(2, limit_s=0.01)
        return await engine.complete(ask(engine, words(tiny, 0, 4), slot=first))

    assert asyncio.run(play()).choices[0].ids
