"""Token-in mode: the ids on record go back to the server, and no divergence can occur."""

import asyncio
import itertools
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from cua_lab.engine.engine import Engine
from cua_lab.errors import LabError
from cua_lab.policy.policy import Policy
from cua_lab.policy.template import image_part
from cua_lab.serving.dialects import MissingTokenIds, read_choice
from cua_lab.serving.server import create_app
from cua_lab.serving.shim import SLOT_HEADER, ShimTransport
from cua_lab.serving.token_in import (
    TemplateRenderer,
    TokenIn,
    one_pad_per_image,
    sampling_params,
    token_in_of,
)
from cua_lab.stitching.episode_images import episode_images
from cua_lab.stitching.stitch import stitch
from cua_lab.stitching.turn import Turn
from tests.recordings import SGLANG, recording
from tests.serving.conftest import screen

TOOLS = [{"type": "function", "function": {"name": "computer", "parameters": {"type": "object"}}}]
ASK = {"role": "user", "content": "Click the red button."}
SAID = {"role": "assistant", "content": "I click."}
SEEN = {
    "role": "user",
    "content": [
        {"type": "text", "text": "Tool returned the following:"},
        image_part(screen(1)),
    ],
}


@pytest.fixture(scope="module")
def token_in(tiny: Policy) -> TokenIn:
    return token_in_of(tiny)


def first_turn(token_in: TokenIn, said: str = "I click.<|im_end|>") -> Turn:
    prompt = token_in.renderer.encode(token_in.renderer.text([ASK], TOOLS, ask=True))
    return Turn(tuple(prompt), tuple(token_in.renderer.encode(said)))


def asked(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": list(messages), "tools": TOOLS, **fields}


def text_of(token_in: TokenIn, ids: list[int]) -> str:
    return token_in.renderer.tokenizer.decode(ids)


def test_the_new_part_follows_the_ids_on_record(token_in):
    turn = first_turn(token_in)
    body = token_in.request(asked(ASK, SAID, SEEN), [ASK], turn)
    known = [*turn.prompt_ids, *turn.output_ids]
    assert body["input_ids"][: len(known)] == known
    whole = token_in.renderer.text([ASK, SAID, SEEN], TOOLS, ask=True)
    assert text_of(token_in, body["input_ids"]) == whole
    assert body["image_data"] == [SEEN["content"][1]["image_url"]["url"]]


def test_odd_ids_of_an_answer_survive_though_its_text_would_be_split_otherwise(token_in):
    """rllm#272: two splits of one text; only the sampled one was sampled."""
    letters = [token_in.renderer.encode(letter)[0] for letter in "I click."]
    turn = first_turn(token_in)
    odd = Turn(turn.prompt_ids, (*letters, turn.output_ids[-1]))
    ids = token_in.request(asked(ASK, SAID, SEEN), [ASK], odd)["input_ids"]
    start = len(turn.prompt_ids)
    assert ids[start : start + len(letters)] == letters


def test_an_answer_without_a_stop_token_is_closed_as_the_template_closes_it(token_in):
    """verl#6501: the newline after `<|im_end|>` must not get lost either."""
    open_answer = first_turn(token_in, "I click.")
    ids = token_in.request(asked(ASK, SAID, SEEN), [ASK], open_answer)["input_ids"]
    assert text_of(token_in, ids) == token_in.renderer.text([ASK, SAID, SEEN], TOOLS, ask=True)


def test_each_image_has_one_pad_in_what_is_sent(token_in):
    """With expanded pads Qwen3-VL answers 500 and Qwen2.5-VL hangs."""
    pad = token_in.codec.image_pad_id
    assert one_pad_per_image([1, pad, pad, pad, 2, pad, 3], pad) == [1, pad, 2, pad, 3]
    assert one_pad_per_image([1, 2], None) == [1, 2]
    turn = first_turn(token_in)
    see = (
        token_in.renderer.encode("<|vision_start|>")[0],
        token_in.renderer.encode("<|vision_end|>")[0],
    )
    seen = Turn((*turn.prompt_ids, see[0], *[pad] * 4, see[1]), turn.output_ids)
    ids = token_in.request(asked(SEEN, SAID, SEEN), [SEEN], seen)["input_ids"]
    assert ids.count(pad) == 2


def test_an_id_beyond_the_vocabulary_is_never_sent(token_in):
    """It ends an sglang server."""
    turn = first_turn(token_in)
    bad = Turn((*turn.prompt_ids, token_in.vocab_size), turn.output_ids)
    with pytest.raises(LabError, match=f"id {token_in.vocab_size} is outside the vocabulary"):
        token_in.request(asked(ASK, SAID, SEEN), [ASK], bad)


def test_a_history_that_was_changed_cannot_be_continued(token_in):
    other = {"role": "user", "content": "Click the blue button."}
    with pytest.raises(LabError, match="message 0 of the history changed"):
        token_in.request(asked(other, SAID, SEEN), [ASK], first_turn(token_in))


def test_a_template_that_forgets_is_named_by_the_first_place_that_differs(token_in):
    """prime-rl#1334, verl#7322."""

    class Forgetful(TemplateRenderer):
        def text(self, messages, tools, *, ask):
            text = super().text(messages, tools, ask=ask)
            return text.replace("I click.", "") if ask else text

    forgetful = TokenIn(Forgetful(token_in.renderer.tokenizer), token_in.codec, token_in.vocab_size)
    with pytest.raises(LabError, match=r"'I click\..* becomes '<\|im_end"):
        forgetful.request(asked(ASK, SAID, SEEN), [ASK], first_turn(token_in))


def test_sampling_options_are_sent_by_their_native_names():
    sent = sampling_params({"max_tokens": 5, "seed": 3, "temperature": 0.0, "logprobs": True})
    assert sent == {"max_new_tokens": 5, "sampling_seed": 3, "temperature": 0.0}
    with pytest.raises(LabError, match="n=2"):
        sampling_params({"n": 2})


def test_a_recorded_sglang_answer_becomes_the_completion_that_was_asked_for(token_in):
    body = recording(SGLANG, "g_generate_b_image_tools_hist_single")["response"]
    turn = Turn(tuple(body["prompt_token_ids"][:200]), tuple(body["prompt_token_ids"][200:220]))
    tokens = read_choice(token_in.chat_answer(body, asked(), turn))
    assert tokens.output_ids == tuple(body["output_ids"])
    assert len(tokens.logprobs) == 12
    assert tokens.truncated
    assert tokens.weight_version == "default"
    other = Turn((1, *turn.prompt_ids[1:]), turn.output_ids)
    with pytest.raises(MissingTokenIds, match="does not start with the 220 ids on record"):
        token_in.chat_answer(body, asked(), other)


def test_a_call_in_the_text_is_a_tool_call(token_in):
    call = '<tool_call>\n{"name": "computer", "arguments": {"x": 1}}\n</tool_call>'
    turn = Turn((1,), (2,))
    meta = {"finish_reason": {"type": "stop", "matched": 7}}
    body = {"text": call, "output_ids": [3], "prompt_token_ids": [1, 2], "meta_info": meta}
    choice = token_in.chat_answer(body, asked(), turn)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"x": 1}'


def play(policy: Policy, token_in: TokenIn | None, turns: int = 4):
    """A conversation with the embedded engine: its garbage, then a new screenshot, and again."""
    shim = ShimTransport(
        httpx.ASGITransport(create_app(Engine(policy))), seed=5, slot=None, token_in=token_in
    )
    messages: list[Any] = [{"role": "user", "content": [image_part(screen(0))]}]

    async def talk() -> None:
        async with httpx.AsyncClient(transport=shim) as http:
            client = AsyncOpenAI(api_key="none", base_url="http://engine/v1", http_client=http)
            for number in range(turns):
                answer = await client.chat.completions.create(
                    model="tiny",
                    messages=messages,
                    tools=TOOLS,
                    max_tokens=12,
                    extra_body={"return_token_ids": True, "ignore_eos": False},
                )
                messages.append(answer.choices[0].message.model_dump(exclude_none=True))
                messages.append({"role": "user", "content": [image_part(screen(number + 1))]})

    asyncio.run(talk())
    return shim.turns


def test_the_embedded_engine_continues_exactly_where_chat_would_diverge(tiny, token_in):
    codec = token_in.codec
    by_text, by_ids = play(tiny, None), play(tiny, token_in)
    assert by_ids[0] == by_text[0]
    for before, after in itertools.pairwise(by_ids):
        known = (*before.prompt_ids, *before.output_ids)
        assert after.prompt_ids[: len(known)] == known
    whole = [Turn(t.prompt_ids, t.output_ids, t.output_logprobs) for t in by_ids]
    (stitched,) = stitch(whole, codec)
    assert stitched.divergences == ()
    assert stitched.ledger.trained == stitched.ledger.sampled
    images = episode_images([screen(k) for k in range(4)], tiny.vision)
    assert len(images.for_sequence(stitched)[1]) == 4
    rendered = [Turn(t.prompt_ids, t.output_ids, t.output_logprobs) for t in by_text]
    assert len(stitch(rendered, codec, after_rewrite="split")) > 1


def test_the_slot_and_the_timeout_travel_with_a_continuation(token_in):
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        turn = first_turn(token_in)
        if request.url.path == "/v1/chat/completions":
            choice = {
                "message": {"role": "assistant", "content": "I click."},
                "finish_reason": "stop",
                "prompt_token_ids": turn.prompt_ids,
                "response_token_ids": turn.output_ids,
            }
            return httpx.Response(200, json={"choices": [choice]})
        known = [*turn.prompt_ids, *turn.output_ids, 5]
        return httpx.Response(
            200, json={"text": "", "output_ids": [6], "prompt_token_ids": known, "meta_info": {}}
        )

    shim = ShimTransport(httpx.MockTransport(answer), slot=2, token_in=token_in)

    async def ask() -> None:
        async with httpx.AsyncClient(transport=shim, timeout=0.5) as client:
            for messages in ([ASK], [ASK, SAID, SEEN]):
                body = asked(*messages, return_token_ids=True)
                await client.post("http://engine/v1/chat/completions", json=body)

    asyncio.run(ask())
    assert [request.url.path for request in seen] == ["/v1/chat/completions", "/generate"]
    assert seen[1].headers[SLOT_HEADER] == "2"
    assert seen[1].extensions["timeout"]["read"] == 0.5
    assert [turn.output_ids for turn in shim.turns][1] == (6,)
