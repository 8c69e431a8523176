"""Scores of the exactness track's exercises that build: a shim, a check of masks, a reward hook.

Invariant: an answer is judged by what it does with recorded or seeded input, never by its code, and
an answer that raises where it should answer is wrong there and stops nothing.
"""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from cua_lab.serving.recordings import SGLANG, VLLM, recorded
from cua_lab.stitching.turn import Turn
from cua_lab.training.advantages import group_advantages

Shim = Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport]
Judge = Callable[[Sequence[Turn], Sequence[int], Sequence[int]], bool]
"""(turns, tokens, mask over the response) -> is exactly what was sampled trained?"""
Hook = Callable[[Sequence[float | None], Sequence[str]], Sequence[float]]
"""(rewards, groups) -> advantages, one a row."""

CALL = "b6_forced_hermes_tool_call"


async def shim_score(shim: Shim) -> dict[str, bool]:
    """Six duties of a transport between HUD and a server, and whether `shim` does each."""
    sglang, vllm = recorded(SGLANG, CALL)["response"], recorded(VLLM, CALL)["response"]
    bare = json.loads(json.dumps(sglang))
    del bare["choices"][0]["response_token_ids"]
    del bare["choices"][0]["meta_info"]
    return {
        "sglang's ids": await _ids(shim, sglang) == (299, 59),
        "vLLM's ids": await _ids(shim, vllm) == (294, 55),
        "the timeout arrives": await _timeout(shim, sglang) == 5,
        "a zipped body": await _ids(shim, sglang, zipped=True) == (299, 59),
        "missing ids are an error": await _ids(shim, bare) is None,
        "a refusal stays one": await _status(shim) == 400,
    }


async def _ask(shim: Shim, answer: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
    asked = {"model": "tiny", "messages": [], "return_token_ids": True, "max_tokens": 80}
    transport = shim(httpx.MockTransport(answer))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://engine/v1/", timeout=5
    ) as http:
        return await http.post("chat/completions", json=asked)


async def _ids(shim: Shim, body: Any, *, zipped: bool = False) -> tuple[int, int] | None:
    """How many prompt and output ids HUD finds; `None` where the shim raises or leaves them out."""
    content = json.dumps(body).encode()
    headers = {"content-encoding": "gzip"} if zipped else {}
    content = gzip.compress(content) if zipped else content
    try:
        response = await _ask(shim, lambda _: httpx.Response(200, headers=headers, content=content))
        choice = response.json()["choices"][0]
        return len(choice["prompt_token_ids"]), len(choice["token_ids"])
    except Exception:  # whatever an answer to an exercise raises
        return None


async def _timeout(shim: Shim, body: Any) -> float | None:
    seen: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.extensions.get("timeout", {}).get("read"))
        return httpx.Response(200, json=body)

    try:
        await _ask(shim, answer)
    except Exception:  # whatever an answer to an exercise raises
        return None
    return seen[0] if seen else None


async def _status(shim: Shim) -> int | None:
    refusal = {"error": {"message": "no model of this name"}}
    try:
        return (await _ask(shim, lambda _: httpx.Response(400, json=refusal))).status_code
    except Exception:  # whatever an answer to an exercise raises
        return None


def judges_agree(answer: Judge, sequences: int = 200) -> int:
    """How many of the sequences an answer judges rightly: half are exact, and each of the others
    has one of five faults."""
    return sum(_judges(answer, seed) for seed in range(sequences))


def _judges(answer: Judge, seed: int) -> bool:
    draw = random.Random(seed)
    turns, kept = _episode(draw)
    tokens, mask = _exact(turns[:kept])
    if broken := seed % 2 == 1:
        tokens, mask = FAULTS[seed // 2 % len(FAULTS)](turns, kept, tokens, mask, draw)
    try:
        return bool(answer(turns, tokens, mask)) is not broken
    except Exception:  # whatever an answer to an exercise raises
        return False


def _episode(draw: random.Random) -> tuple[list[Turn], int]:
    """Three or four turns, and how many come before the last one, whose prompt rewrites history."""
    history = [draw.randrange(1, 50) for _ in range(4)]
    turns: list[Turn] = []
    count = draw.randint(3, 4)
    for number in range(count):
        if number == count - 1:
            history[-4] += 50  # the last id of what was sampled; the scaffold behind it has three
        said = [draw.randrange(1, 50) for _ in range(draw.randint(2, 4))]
        turns.append(Turn(tuple(history), tuple(said), (-0.5,) * len(said)))
        history = history + said + [draw.randrange(50, 60) for _ in range(3)]
    return turns, count - 1


def _exact(turns: Sequence[Turn]) -> tuple[list[int], list[int]]:
    """Tokens, and the mask of the response, of turns that repeat each other."""
    tokens: list[int] = []
    mask: list[int] = []
    for turn in turns:
        mask += [0] * (len(turn.prompt_ids) - len(tokens)) + [1] * len(turn.output_ids)
        tokens = [*turn.prompt_ids, *turn.output_ids]
    return tokens, mask[len(turns[0].prompt_ids) :]


Broken = tuple[list[int], list[int]]
Tokens = list[int]


def _scaffold(_t: Any, _k: int, tokens: Tokens, mask: Tokens, _d: random.Random) -> Broken:
    return tokens, [1] * len(mask)


def _no_stop(_t: Any, _k: int, tokens: Tokens, mask: Tokens, _d: random.Random) -> Broken:
    return tokens, [*mask[:-1], 0]


def _shifted(_t: Any, _k: int, tokens: Tokens, mask: Tokens, _d: random.Random) -> Broken:
    return tokens, [mask[-1], *mask[:-1]]


def _retold(_t: Any, _k: int, tokens: Tokens, mask: Tokens, draw: random.Random) -> Broken:
    start = len(tokens) - len(mask)
    at = start + draw.choice([i for i, m in enumerate(mask) if m])
    return [*tokens[:at], tokens[at] + 100, *tokens[at + 1 :]], mask


def _glued(turns: list[Turn], kept: int, tokens: Tokens, mask: Tokens, _d: Any) -> Broken:
    """The turn after the rewrite is put behind a history that it never saw."""
    turn = turns[kept]
    new = list(turn.prompt_ids[len(tokens) :])
    said = list(turn.output_ids)
    return tokens + new + said, mask + [0] * len(new) + [1] * len(said)


FAULTS = (_scaffold, _no_stop, _shifted, _retold, _glued)


def hooks_agree(answer: Hook, batches: int = 200) -> int:
    """On how many random batches an answer gives the package's advantages, failures 0."""
    return sum(_hooks(answer, seed) for seed in range(batches))


def _hooks(answer: Hook, seed: int) -> bool:
    draw = random.Random(seed)
    rows: list[tuple[float | None, str]] = []
    for group in ("a", "b", "c"):
        silent = draw.random() < 0.3
        for _ in range(draw.randint(1, 5)):
            reward = None if draw.random() < 0.25 else 0.5 if silent else draw.random()
            rows.append((reward, group))
    draw.shuffle(rows)  # Miles promises no order
    rewards, groups = [reward for reward, _ in rows], [group for _, group in rows]
    wanted = [0.0 if math.isnan(a) else a for a in group_advantages(rewards, groups).values]
    try:
        found = [float(a) for a in answer(rewards, groups)]
    except Exception:  # whatever an answer to an exercise raises
        return False
    return len(found) == len(wanted) and all(
        abs(a - b) < 1e-3 for a, b in zip(found, wanted, strict=True)
    )
