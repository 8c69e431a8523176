"""The bench's parts about tokens: sampling them, recording them, stitching and showing them.

prefill  one token for each of 32 prompts with a screenshot   transformers' `generate`
decode   48 tokens for each of them                           transformers' `generate`
shim     one recorded answer, with its exact ids              the same answer, read as JSON
stitch   one episode of 24 turns made into one sequence       the published way
viewer   a page with every token of an episode                rich, a style for each token
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import httpx
import numpy as np
import torch
from rich.console import Console
from rich.text import Text

from cua_lab.bench.machine_limits import Limits, best_s
from cua_lab.bench.pairs import Measured, Way, growing, interleaved, pairs_of
from cua_lab.bench.published_stitch import stitch_by_walking
from cua_lab.bench.synthetic_episodes import episode
from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import GenerationRequest
from cua_lab.engine.token_sampling import SamplingParams
from cua_lab.pictures import png_bytes
from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import Example
from cua_lab.recipes import load_recipe
from cua_lab.run.stage_context import build_stage, demonstrator_of, new_policy
from cua_lab.serving.recordings import SGLANG, recorded
from cua_lab.serving.shim import ShimTransport
from cua_lab.stitching.stitch import stitch
from cua_lab.stitching.turn import Turn
from cua_lab.training.warmup import make_prompt
from cua_lab.viz.page import page_of
from cua_lab.viz.payload import token_text, viewer_payload

PROMPTS, TOKENS = 32, 48
TURNS = (12, 24, 48, 96)
ONE_AT_A_TIME, BATCHED = "generate, one at a time", "generate, batched"


@dataclass(frozen=True, slots=True)
class Prompts:
    """The laptop recipe's click policy with random weights, and prompts for it."""

    policy: Policy
    examples: Sequence[Example]
    pictures: Sequence[Sequence[bytes]]

    @classmethod
    def make(cls, count: int) -> Prompts:
        recipe = load_recipe("laptop")
        context = build_stage(recipe, recipe.stage("click"))
        demonstrator = demonstrator_of(context)
        assert demonstrator is not None  # the lab's own recipes bring one
        policy = new_policy(context, demonstrator)
        demos = [demonstrator(index) for index in range(count)]
        return cls(
            policy,
            [make_prompt(policy, demo) for demo in demos],
            [[png_bytes(image) for image in demo.images[:1]] for demo in demos],
        )

    def requests(self, engine: Engine, tokens: int) -> list[GenerationRequest]:
        """Greedy ones, of exactly so many tokens."""
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        return [
            GenerationRequest(engine.prompt(_one_pad(self.policy, e.ids), images), params)
            for e, images in zip(self.examples, self.pictures, strict=True)
        ]

    def operations(self, tokens: int) -> float:
        """Multiplications and additions of a forward pass over all prompts and so many answers:
        two for each parameter of the matrices and each token; attention's own are few here."""
        text, vision = sizes(self.policy)
        said = len(self.examples) * tokens
        read = sum(len(example.ids) for example in self.examples)
        patches = sum(len(example.pixels) for example in self.examples)
        return 2 * (text * (read + said) + vision * patches)


def sizes(policy: Policy) -> tuple[int, int]:
    """Parameters of the text model's matrices, and of the vision tower."""
    body = policy.model.model
    text = sum(p.numel() for n, p in body.language_model.named_parameters() if "embed" not in n)
    return text, sum(p.numel() for p in body.visual.parameters())


async def prefill(rounds: int, top: Limits) -> Measured:
    """Prompts alone: one token each."""
    return await _answers("prefill", 1, rounds, top)


async def decode(rounds: int, top: Limits) -> Measured:
    """Prompts and answers."""
    return await _answers("decode", TOKENS, rounds, top)


async def _answers(part: str, tokens: int, rounds: int, top: Limits) -> Measured:
    prompts = Prompts.make(PROMPTS)
    policy, examples = prompts.policy, prompts.examples
    engine = Engine(policy, max_batch=PROMPTS)
    try:
        requests = prompts.requests(engine, tokens)
        ways: Mapping[str, Way] = {
            "engine": partial(_complete, engine, requests),
            ONE_AT_A_TIME: later(lambda: [_generate(policy, [e], tokens)[0] for e in examples]),
            BATCHED: later(lambda: _generate(policy, examples, tokens)),
        }
        ours, theirs = await _complete(engine, requests), _generate(policy, examples, tokens)
        equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
        pairs = pairs_of(
            part,
            f"{PROMPTS} prompts of {len(examples[0].ids)} tokens, {tokens} new each",
            await interleaved(ways, rounds=rounds),
            note=f"{equal} of {PROMPTS} greedy answers equal",
            limit="matrix products",
            limit_ms=top.products_ms(prompts.operations(tokens)),
            why="equal beginnings of prompts are computed once and screenshots once; weights are"
            " fused into fewer, larger products and a step is a few dozen calls of torch instead of"
            " several hundred. Matrices this small reach a part of the rate of large ones",
        )
        counts = [PROMPTS // 4, PROMPTS // 2, PROMPTS] if PROMPTS >= 8 else [1, PROMPTS]
        growth = {n: partial(_complete, engine, requests[:n]) for n in counts}
        return Measured(pairs, [await growing(part, "prompts", growth, rounds=rounds)])
    finally:
        engine.close()


async def _complete(engine: Engine, requests: Sequence[GenerationRequest]) -> list[tuple[int, ...]]:
    engine.flush_cache()  # else every round but the first would be without a prefill
    slots = engine.open_slots(len(requests))
    try:
        answers = await asyncio.gather(
            *(
                engine.complete(replace(request, slot=slot))
                for request, slot in zip(requests, slots, strict=True)
            )
        )
    finally:
        for slot in slots:
            engine.close_slot(slot)
    return [answer.choices[0].ids for answer in answers]


async def shim(rounds: int, top: Limits) -> Measured:
    """One answer of a real sglang, from the request to a recorded turn."""
    exchange = recorded(SGLANG, "b2_one_image__hud_return_token_ids_logprobs")
    body = json.dumps(exchange["response"]).encode()
    asked = exchange["request"]

    def answer(request: httpx.Request) -> httpx.Response:
        headers = {"content-type": "application/json"}
        return httpx.Response(200, content=body, headers=headers, request=request)

    async def post(transport: httpx.AsyncBaseTransport) -> Any:
        async with httpx.AsyncClient(transport=transport, base_url="http://engine/v1/") as http:
            for _ in range(20):
                (await http.post("chat/completions", json=asked)).json()

    ways = {
        "shim": lambda: post(ShimTransport(httpx.MockTransport(answer), dialect="sglang")),
        "plain JSON": lambda: post(httpx.MockTransport(answer)),
    }
    parsed = best_s(lambda: [json.dumps(json.loads(body)) for _ in range(20)], 5)
    return Measured(
        pairs_of(
            "shim",
            "20 answers of 12 tokens with their ids",
            await interleaved(ways, rounds=rounds),
            limit="answers parsed and written once",
            limit_ms=parsed * 1e3,
            why="what it costs to have exact ids: the request is parsed and gets the server's own"
            " flags, the answer's ids and log-probabilities are checked and the turn is recorded",
        )
    )


async def stitching(rounds: int, top: Limits) -> Measured:
    """24 turns, each of which the next prompt shows with other white space; the published way
    checks what it has before it takes the prompt over."""
    made = {turns: _turns(turns) for turns in TURNS}
    turns, codec = made[24]
    ways = {
        "stitch": later(partial(stitch, turns, codec)),
        "the published way": later(partial(stitch_by_walking, turns, codec)),
    }
    read = sum(len(turn.prompt_ids) + len(turn.output_ids) for turn in turns)
    (made_of_24,), (_, mask, _) = stitch(turns, codec), stitch_by_walking(turns, codec)
    ledger = made_of_24.ledger
    pairs = pairs_of(
        "stitch",
        f"24 turns with {len(made_of_24.divergences)} divergences",
        await interleaved(ways, rounds=rounds),
        note=f"of {ledger.sampled} sampled tokens {ledger.trained} and {sum(mask)} are trained",
        limit="all ids read once",
        limit_ms=top.moved_ms(4 * read),
        why="a prompt is compared with what is known in one call, and only what it adds is looked"
        " at; the published way walks every prompt id by id. Both build Python lists",
    )
    growth = {n: later(partial(stitch, *made[n])) for n in TURNS}
    return Measured(pairs, [await growing("stitch", "turns", growth, rounds=rounds)])


async def viewer(rounds: int, top: Limits) -> Measured:
    """An episode of 24 turns, 15,558 tokens, as a page."""
    turns, codec = _turns(24)
    (stitched,) = stitch(turns, codec)

    def ours() -> str:
        payload = viewer_payload(stitched, codec)
        return page_of("viewer.html.jinja", title="24 turns", style="", script="", payload=payload)

    def rich_page() -> str:
        console = Console(record=True, width=200, file=io.StringIO())
        start, text = stitched.response_start, Text()
        mask = [0] * start + list(stitched.loss_mask)
        for token, trained in zip(stitched.tokens, mask, strict=True):
            text.append(token_text(codec, token), "bold green" if trained else "dim")
        console.print(text)
        return console.export_html()

    payload = viewer_payload(stitched, codec)
    ways = {"mask viewer": later(ours), "rich's export_html": later(rich_page)}
    return Measured(
        pairs_of(
            "viewer",
            f"a page of {len(stitched.tokens):,} tokens",
            await interleaved(ways, rounds=rounds),
            note=f"{len(ours()) / 1e3:.0f} kB and {len(rich_page()) / 1e3:.0f} kB",
            limit="its payload as JSON",
            limit_ms=best_s(lambda: json.dumps(payload), 5) * 1e3,
            why="ids, runs and a table of texts go to the page, and its script draws the tokens"
            " that are in sight; the peer writes a span for each token and wraps its lines",
        )
    )


def later(run: Callable[[], Any]) -> Way:
    """A plain function as a way of the bench."""

    async def way() -> Any:
        return run()

    return way


def _turns(count: int) -> tuple[list[Turn], Any]:
    made, codec = episode(count, diverging=True)
    return [Turn(tuple(p), tuple(o), (-0.5,) * len(o)) for p, o in made], codec


def _one_pad(policy: Policy, ids: Sequence[int]) -> list[int]:
    """As a prompt goes over the wire: one image token for each image."""
    pad = policy.image_token_id
    return [t for i, t in enumerate(ids) if t != pad or i == 0 or ids[i - 1] != pad]


@torch.no_grad()
def _generate(policy: Policy, examples: Sequence[Example], tokens: int) -> list[tuple[int, ...]]:
    """transformers' own loop; prompts of one batch have one length, so that nothing is padded."""
    ids = torch.tensor(np.stack([example.ids for example in examples]))  # (B, T)
    model: Any = policy.model  # transformers' own class, which has `generate`
    out = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        pixel_values=torch.from_numpy(np.concatenate([e.pixels for e in examples])),
        image_grid_thw=torch.from_numpy(np.concatenate([e.grids for e in examples])),
        mm_token_type_ids=(ids == policy.image_token_id).int(),
        do_sample=False,
        max_new_tokens=tokens,
        eos_token_id=policy.vocab_size,  # which no token is
        suppress_tokens=list(policy.forbidden_ids),
    )
    return [tuple(row) for row in out[:, ids.shape[1] :].tolist()]
