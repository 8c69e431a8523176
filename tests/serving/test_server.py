"""The server answers like the recorded sglang: the same fields, the same errors."""

import asyncio
import base64
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import Choice, Generation, GenerationRequest
from cua_lab.engine.token_sampling import SamplingParams
from cua_lab.policy.policy import Policy, build_policy
from cua_lab.policy.template import image_part
from cua_lab.policy.tokenizer import Corpus
from cua_lab.serving.server import SLOT_HEADER, create_app
from cua_lab.serving.wire import ResponseOptions
from cua_lab.serving.wire_out import ResponseContext, chat_response
from tests.recordings import SGLANG, recording
from tests.serving.conftest import TINY, screen

Make = Callable[..., Engine]
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Click the red button."}]


@pytest.fixture(scope="module")
def engine(tiny: Policy) -> Engine:
    return Engine(tiny)


def post(
    engine: Engine, body: Any, path: str = CHAT, headers: dict[str, str] | None = None
) -> httpx.Response:
    return asyncio.run(_send(engine, "POST", path, json=body, headers=headers))


async def _send(engine: Engine, method: str, path: str, **options: Any) -> httpx.Response:
    transport = httpx.ASGITransport(create_app(engine))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        return await client.request(method, path, **options)


def shape(value: Any) -> Any:
    """Keys and types; a list is the shape of its first item."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) else type(value).__name__


def differences(ours: Any, recorded: Any, at: str = "") -> list[str]:
    """Where two shapes differ; empty lists and `bytes` were cut out of some recordings."""
    if isinstance(ours, dict) and isinstance(recorded, dict):
        keys = [f"{at}.{key}" for key in ours.keys() ^ recorded.keys()]
        both = (ours.keys() & recorded.keys()) - DEPENDS
        return keys + [d for k in both for d in differences(ours[k], recorded[k], f"{at}.{k}")]
    if isinstance(ours, list) and isinstance(recorded, list):
        return differences(ours[0], recorded[0], f"{at}[]") if ours and recorded else []
    return [] if ours == recorded else [f"{at}: {ours} instead of {recorded}"]


DEPENDS = {"bytes", "cached_tokens_details", "matched_stop", "finish_reason"}
"""What depends on the prefix cache, on what a random model says, or was cut out."""


def replayed(request: dict[str, Any], policy: Policy) -> dict[str, Any]:
    """A recorded request for this policy: ids it knows, a screen for the one that was cut out."""
    body = json.loads(json.dumps(request))
    for message in body.get("messages", []):
        if isinstance(message["content"], list):
            message["content"] = [
                image_part(screen(0)) if part["type"] == "image_url" else part
                for part in message["content"]
            ]
    pads = 1 if body.get("image_data") else 0
    if body.get("input_ids"):
        body["input_ids"] = [5] * (len(body["input_ids"]) - pads) + [policy.image_token_id] * pads
    if pads:
        body["image_data"] = [base64.b64encode(screen(0)).decode()]
    return body


def oversized() -> bytes:
    """A PNG's header that says 30000x30000 (sgl-project/sglang#28587)."""
    body = b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    whole = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    return b"\x89PNG\r\n\x1a\n" + whole + bytes(60)


@pytest.mark.parametrize(
    "name",
    [
        "a_text__all_flags_top2",
        "a_text__hud_return_token_ids_logprobs",
        "a_text__input_ids_same",
        "a_text__noflags",
        "a_text__prompt_ids_meta_logprobs",
        "a_text__return_token_ids",
        "b2_one_image__hud_return_token_ids_logprobs",
        "b_image_tools_hist__all_flags_top2",
        "c_hud_continuation_fields",
        "c_max_tokens_zero",
        "c_n2",
        "c_seed_min_tokens_ignore_eos",
        "c_tiny_image_1x1",
        "c_tool_message_without_id",
        "c_unknown_field",
        "g_generate_a_text_text",
        "g_generate_b2_one_image_single",
        "g_rescore_a_text",
    ],
)
def test_an_answer_has_the_fields_of_the_recorded_one(
    engine: Engine, tiny: Policy, name: str
) -> None:
    recorded = recording(SGLANG, name)
    answer = post(engine, replayed(recorded["request"], tiny), recorded["path"])
    assert answer.status_code == recorded["status"] == 200
    assert differences(shape(answer.json()), shape(recorded["response"])) == []


@pytest.mark.parametrize(
    "name",
    [
        "c_stream_return_meta_info",
        "c_stream_return_prompt_token_ids",
        "c_stream_return_token_ids",
        "c_negative_temperature",
        "c_max_tokens_over_context",
        "c_input_ids_empty",
        "c_malformed_tool_args_history",
    ],
)
def test_a_mistake_is_answered_with_the_recorded_words(
    engine: Engine, tiny: Policy, name: str
) -> None:
    recorded = recording(SGLANG, name)
    answer = post(engine, replayed(recorded["request"], tiny))
    assert answer.status_code == recorded["status"] == 400
    assert answer.json() == recorded["response"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"messages": [{"role": "wizard", "content": "x"}]}, "'role' must be one of"),
        ({"messages": []}, "non-empty"),
        ({"messages": HELLO * 3000}, "longer than the model's context length (4096 tokens)"),
        ({"messages": HELLO, "regex": "a+"}, "regex"),
        ({"messages": HELLO, "tool_choice": "required"}, "tool_choice"),
        ({"messages": HELLO, "repetition_penalty": 1.2}, "repetition_penalty"),
        ({"messages": HELLO, "temperature": "hot"}, "temperature must be a number"),
        ({"messages": HELLO, "input_ids": [1, 10**6]}, "vocabulary"),
        ({"messages": HELLO, "n": 1000}, "n must be from 1"),
        ([], "JSON object"),
        (
            {"messages": [{"role": "user", "content": [image_part(b"not a picture")]}]},
            "cannot read an image",
        ),
        (
            {"messages": [{"role": "user", "content": [image_part(oversized())]}]},
            "cannot read an image",
        ),
        (
            {"messages": [{"role": "user", "content": [image_part(screen(0)[:200])]}]},
            "cannot read an image",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "image_url",
                                "image_url": {"url": "data:image/png;base64,@@@@"},
                            }
                        ],
                    }
                ]
            },
            "base64",
        ),
    ],
)
def test_every_other_mistake_is_a_400_that_says_what_is_wrong(
    engine: Engine, body: Any, says: str
) -> None:
    """Above all those for which sglang answers 500, hangs or dies."""
    answer = post(engine, body)
    assert answer.status_code == 400
    error = answer.json()
    assert set(error) == set(recording(SGLANG, "c_bad_image_base64")["response"])
    assert (error["object"], error["code"]) == ("error", 400)
    assert says in error["message"]


def test_ids_and_log_probabilities_are_one_array_in_every_place(
    engine: Engine, tiny: Policy
) -> None:
    """The stop token is in the ids and the log-probabilities, and not in the text."""
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Go"}]}],
        "max_tokens": 50,
        "seed": 4,
        "return_token_ids": True,
        "return_meta_info": True,
        "logprobs": True,
        "stop_token_ids": list(range(0, 300, 7)),
    }
    choice = post(engine, body).json()["choices"][0]
    triples = choice["meta_info"]["output_token_logprobs"]
    ids = choice["response_token_ids"]
    assert [t[1] for t in triples] == ids
    assert [t[0] for t in triples] == [c["logprob"] for c in choice["logprobs"]["content"]]
    assert choice["matched_stop"] == ids[-1]
    assert choice["message"]["content"] == tiny.tokenizer.decode(ids[:-1], skip_special_tokens=True)


def test_token_in_equals_the_chat_that_gave_the_ids(engine: Engine, tiny: Policy) -> None:
    """With ONE pad per image, as sglang's `/generate` wants it; its chat would drop the image."""
    picture = screen(3)
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Click."}, image_part(picture)]}
    ]
    options = {"messages": messages, "seed": 5, "max_tokens": 9, "return_token_ids": True}
    said = post(engine, options).json()["choices"][0]
    pads = said["prompt_token_ids"].count(tiny.image_token_id)
    first = said["prompt_token_ids"].index(tiny.image_token_id)
    single = [i for k, i in enumerate(said["prompt_token_ids"]) if not first < k < first + pads]
    assert pads == 4
    chat = post(engine, {**options, "input_ids": single}).json()["choices"][0]
    native = post(
        engine,
        {
            "input_ids": single,
            "image_data": [f"data:image/png;base64,{base64.b64encode(picture).decode()}"],
            "sampling_params": {"sampling_seed": 5, "temperature": 1.0, "max_new_tokens": 9},
            "return_prompt_token_ids": True,
        },
        "/generate",
    ).json()
    assert said["response_token_ids"] == chat["response_token_ids"] == native["output_ids"]
    assert said["prompt_token_ids"] == chat["prompt_token_ids"] == native["prompt_token_ids"]
    expanded = {**options, "input_ids": said["prompt_token_ids"]}
    assert "4 image tokens but 1 images" in post(engine, expanded).json()["message"]


def answer_saying(
    engine: Engine, text: str, finish: str = "stop", seed: int = 0
) -> ResponseContext:
    """An answer as if the policy had said `text`."""
    tokenizer = engine.policy.tokenizer
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = [*ids, tokenizer.eos_token_id] if finish == "stop" else ids
    matched = ids[-1] if finish == "stop" else None
    choice = Choice(tuple(ids), (-1.0,) * len(ids), (), finish, matched, seed)
    prompt = engine.prompt([5, 6])
    generation = Generation(prompt, (choice,), (), 0, "default")
    return ResponseContext(
        generation, GenerationRequest(prompt, SamplingParams()), engine.detokenizer, 0.0
    )


CALL = '<tool_call>\n{"name": "computer", "arguments": {"action": "click", "x": 44}}\n</tool_call>'


def test_calls_become_tool_calls_and_the_reason_says_so(engine: Engine) -> None:
    recorded = recording(SGLANG, "b7_forced_text_and_two_tool_calls")["response"]["choices"][0]
    wanted = ResponseOptions("tiny", tools=("computer",), output_ids=True)
    body = chat_response(answer_saying(engine, f"I click. {CALL}\n{CALL}"), wanted)
    choice = body["choices"][0]
    assert shape(choice["message"]) == shape(recorded["message"])
    assert choice["message"]["content"] == "I click."
    assert [c["index"] for c in choice["message"]["tool_calls"]] == [0, 1]
    assert (choice["finish_reason"], choice["matched_stop"]) == ("tool_calls", None)
    assert choice["response_token_ids"][-1] == engine.policy.tokenizer.eos_token_id


@pytest.mark.parametrize(
    ("text", "finish"), [(CALL.replace('"x"', "x"), "stop"), (CALL[:40], "length")]
)
def test_a_call_that_does_not_parse_leaves_an_empty_message(
    engine: Engine, text: str, finish: str
) -> None:
    body = chat_response(
        answer_saying(engine, text, finish),
        ResponseOptions("tiny", tools=("computer",), output_ids=True),
    )
    choice = body["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "", "reasoning_content": None}
    assert choice["finish_reason"] == finish
    assert choice["response_token_ids"]


def test_call_ids_are_unique_and_the_same_in_every_run(engine: Engine) -> None:
    """Stored notebook outputs hold them."""

    def ids(seed: int) -> list[str]:
        wanted = ResponseOptions("tiny", tools=("computer",))
        body = chat_response(answer_saying(engine, f"{CALL}\n{CALL}", seed=seed), wanted)
        return [call["id"] for call in body["choices"][0]["message"]["tool_calls"]]

    assert ids(1) == ids(1)
    assert len({*ids(1), *ids(2)}) == 4
    assert all(len(i) == len("call_6dec844151a843b3b95e525f") for i in ids(1))


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("name", ["c_stream_plain_usage", "c_stream_logprobs_only"])
def test_a_stream_has_the_recorded_chunks_and_says_what_the_whole_answer_says(
    engine: Engine, tiny: Policy, name: str
) -> None:
    recorded = recording(SGLANG, name)
    body = replayed(recorded["request"], tiny) | {"seed": 3, "temperature": 1.0, "max_tokens": 30}
    answer = post(engine, body)
    chunks = events(answer.text)
    wanted = [shape(c) for c in events(recorded["response"]["__text__"])]
    found = [shape(c) for c in chunks]
    for expected in wanted:
        assert any(differences(chunk, expected) == [] for chunk in found)
    text = "".join(c["delta"].get("content", "") for k in chunks for c in k["choices"])
    whole = post(engine, {**body, "stream": False, "stream_options": None}).json()
    assert text == whole["choices"][0]["message"]["content"]
    if "usage" in chunks[-1]:
        assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_a_stream_that_cannot_begin_is_a_400(engine: Engine) -> None:
    answer = post(engine, {"messages": HELLO, "stream": True, "max_tokens": 10**6})
    assert answer.status_code == 400


def test_the_engine_says_what_it_serves(engine: Engine) -> None:
    async def get(path: str) -> httpx.Response:
        return await _send(engine, "GET", path)

    models = asyncio.run(get("/v1/models")).json()
    assert shape(models) == shape(recording(SGLANG, "c_models")["response"])
    health = asyncio.run(get("/health"))
    assert (health.status_code, health.text) == (200, "")
    info = asyncio.run(get("/model_info")).json()
    assert info["weight_version"] == engine.weight_version
    assert "Cache flushed" in asyncio.run(get("/flush_cache")).text


def test_weights_are_updated_over_the_wire_or_stay_as_they_were(
    corpus: Corpus, make_engine: Make, tmp_path: Path
) -> None:
    engine = make_engine(build_policy(TINY, corpus, seed=1))
    folder = str(build_policy(TINY, corpus, seed=2).save(tmp_path / "new"))
    path = "/update_weights_from_disk"
    bad = post(engine, {"model_path": "models/nope"}, path)
    assert bad.status_code == 400
    assert (bad.json()["success"], set(bad.json())) == (
        False,
        {"success", "message", "num_paused_requests"},
    )
    body = {"messages": HELLO, "max_tokens": 3, "return_meta_info": True, "temperature": 0}
    before = post(engine, body).json()
    assert before["metadata"]["weight_version"] == "default"
    good = post(engine, {"model_path": folder, "weight_version": "step-7"}, path)
    assert good.json() == {
        "success": True,
        "message": "Succeeded to update model weights. Weight version updated to step-7.",
        "num_paused_requests": 0,
    }
    after = post(engine, body).json()
    assert after["choices"][0]["meta_info"]["weight_version"] == "step-7"
    assert after["choices"][0]["meta_info"]["cached_tokens"] == 0
    assert after["metadata"]["weight_versions"] == [{"version": "step-7", "start": 0, "end": 3}]


def test_the_slot_header_holds_requests_back_for_their_round(
    tiny: Policy, make_engine: Make
) -> None:
    engine = make_engine(tiny)
    engine.open_slots(2)

    async def play() -> list[httpx.Response]:
        body = {"messages": HELLO, "max_tokens": 3, "seed": 1}
        tasks = [
            asyncio.ensure_future(
                _send(engine, "POST", CHAT, json=body, headers={SLOT_HEADER: str(slot)})
            )
            for slot in (1, 0)
        ]
        return list(await asyncio.gather(*tasks))

    assert [r.status_code for r in asyncio.run(play())] == [200, 200]
    assert engine.stats.batches == 1
    wrong = post(engine, {"messages": HELLO}, headers={SLOT_HEADER: "7"})
    assert (wrong.status_code, "slot 7" in wrong.json()["message"]) == (400, True)
    assert post(engine, {"messages": HELLO}, headers={SLOT_HEADER: "x"}).status_code == 400


def test_a_bias_reaches_the_sampling_of_both_endpoints_and_a_bad_one_is_refused(
    engine: Engine,
) -> None:
    end = engine.policy.stop_ids[0]
    body = {"messages": HELLO, "max_tokens": 1, "return_token_ids": True}
    chat = post(engine, body | {"logit_bias": {str(end): 100}}).json()
    assert chat["choices"][0]["response_token_ids"] == [end]
    params = {"max_new_tokens": 1, "logit_bias": {str(end): 100}}
    native = post(engine, {"text": "Click", "sampling_params": params}, "/generate").json()
    assert native["output_ids"] == [end]
    for bad in ({"99999": 1}, {"x": 1}, {"5": 101}, {"5": None}, [5]):
        refused = post(engine, body | {"logit_bias": bad})
        assert (refused.status_code, "logit_bias" in refused.json()["message"]) == (400, True)
