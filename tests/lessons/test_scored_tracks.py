"""The scores of the exactness track's exercises tell a right answer from nearly right ones."""

import asyncio
import json
import math
from statistics import fmean, pstdev

import httpx

from cua_lab.lessons.scored_tracks import hooks_agree, judges_agree, shim_score
from cua_lab.serving.shim import ShimTransport


class Careless(httpx.AsyncBaseTransport):
    """Lesson 02's ten lines."""

    def __init__(self, inner):
        self.inner = inner

    async def handle_async_request(self, request):
        asked = json.loads(await request.aread()) | {"return_meta_info": True, "logprobs": True}
        answer = await self.inner.handle_async_request(
            httpx.Request(request.method, request.url, headers=request.headers, json=asked)
        )
        body = json.loads(await answer.aread())
        for choice in body["choices"]:
            choice["token_ids"] = choice["response_token_ids"]
        return httpx.Response(200, headers=answer.headers, json=body)


def test_the_packages_shim_does_all_six_duties() -> None:
    assert all(asyncio.run(shim_score(ShimTransport)).values())


def test_the_ten_lines_do_two_of_them() -> None:
    done = [duty for duty, well in asyncio.run(shim_score(Careless)).items() if well]
    assert done == ["sglang's ids", "missing ids are an error"]


def test_no_shim_at_all_only_hands_things_on() -> None:
    done = [duty for duty, well in asyncio.run(shim_score(lambda inner: inner)).items() if well]
    assert done == ["the timeout arrives", "missing ids are an error", "a refusal stays one"]


def judge(turns, tokens, mask, *, context=True, place=True):
    wanted, marks = [], []
    for turn in turns:
        if context and list(turn.prompt_ids[: len(wanted)]) != wanted:
            break
        new = turn.prompt_ids[len(wanted) :]
        wanted += [*new, *turn.output_ids]
        marks += [0] * len(new) + [1] * len(turn.output_ids)
    marks = marks[len(turns[0].prompt_ids) :]
    same = list(mask) == marks if place else sum(mask) == sum(marks)
    return list(tokens) == wanted and same


def test_the_judge_that_builds_the_sequence_again_is_always_right() -> None:
    assert judges_agree(judge) == 200


def test_judges_that_look_at_less_are_found_out() -> None:
    assert judges_agree(lambda t, tokens, mask: True) == 100
    assert judges_agree(lambda *a: judge(*a, context=False)) <= 100
    assert judges_agree(lambda *a: judge(*a, place=False)) < 200
    assert judges_agree(lambda t, tokens, mask: 1 / 0) == 0


def hook(rewards, groups, *, failed=None, deviation=pstdev):
    rewards = [failed if r is None else r for r in rewards]
    rows = list(zip(rewards, groups, strict=True))
    graded = {g: [r for r, h in rows if h == g and r is not None] for g in groups}

    def advantage(reward, group):
        if reward is None or len(set(graded[group])) < 2:
            return 0.0
        return (reward - fmean(graded[group])) / deviation(graded[group])

    return [advantage(r, g) for r, g in rows]


def test_a_hook_that_leaves_failures_out_agrees_everywhere() -> None:
    assert hooks_agree(hook) == 200


def test_hooks_that_miscount_do_not() -> None:
    assert hooks_agree(lambda r, g: hook(r, g, failed=0.0)) < 50
    assert hooks_agree(lambda r, g: hook(r, ["one"] * len(g))) < 50
    assert hooks_agree(lambda r, g: [math.nan] * len(r)) == 0
    assert hooks_agree(lambda r, g: hook(r, g)[:-1]) == 0
