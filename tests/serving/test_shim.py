"""The shim: HUD's contract on one side, a recorded server on the other."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hud.agents.openai_compatible.agent import OpenAIChatAgent, OpenAIChatRunState
from hud.agents.types import OpenAIChatConfig
from openai import APIStatusError, AsyncOpenAI

from cua_lab.errors import LabError
from cua_lab.serving.dialects import MissingTokenIds
from cua_lab.serving.shim import SLOT_HEADER, ShimTransport
from cua_lab.stitching.turn import Turn
from tests.recordings import SGLANG, SGLANG_BF16, VLLM, recording

BASE = "http://engine/v1"
ASK = {"model": "tiny", "messages": [], "return_token_ids": True, "max_tokens": 80}


class Server(httpx.AsyncBaseTransport):
    """Answers from a list and remembers what it was asked."""

    def __init__(self, *answers: httpx.Response | Callable[[httpx.Request], httpx.Response]):
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.answers.pop(0)

    async def aclose(self) -> None:
        self.closed = True

    def body(self, index: int = -1) -> dict[str, Any]:
        return json.loads(self.requests[index].content)


def answer(engine: str, name: str) -> httpx.Response:
    exchange = recording(engine, name)
    return httpx.Response(exchange["status"], json=exchange["response"])


def post(shim: ShimTransport, body: dict[str, Any], **options: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=shim) as client:
            return await client.post(f"{BASE}/chat/completions", json=body, **options)

    return asyncio.run(send())


@pytest.mark.parametrize("engine", [SGLANG_BF16, VLLM])
def test_huds_own_agent_gets_a_complete_sample_on_every_turn(engine):
    """With stock sglang or vLLM the agent's `Sample` is `None` on every turn."""
    exchanges = recording(engine, "h_hud_agent_wire_img")
    server = Server(*[httpx.Response(200, json=e["response"]) for e in exchanges])
    shim = ShimTransport(server)

    async def play() -> list[Any]:
        async with httpx.AsyncClient(transport=shim) as http:
            client = AsyncOpenAI(api_key="none", base_url=BASE, http_client=http, max_retries=0)
            agent = OpenAIChatAgent(
                OpenAIChatConfig(
                    model="tiny",
                    model_client=client,
                    checkpoint="latest",
                    completion_kwargs={"max_tokens": 60, "extra_body": {"return_token_ids": True}},
                )
            )
            state = OpenAIChatRunState(messages=[{"role": "user", "content": "Click Submit."}])
            return [await agent.get_response(state) for _ in exchanges]

    steps = asyncio.run(play())
    for step, turn in zip(steps, shim.turns, strict=True):
        assert step.tool_calls
        assert step.sample.prompt_token_ids == list(turn.prompt_ids)
        assert step.sample.output_token_ids == list(turn.output_ids)
        assert step.sample.output_logprobs == list(turn.output_logprobs)
    for index in range(len(exchanges)):
        assert not {"prompt_token_ids", "continuation_from", "checkpoint"} & set(server.body(index))
    assert server.closed


def test_the_server_is_asked_for_everything_that_any_dialect_needs():
    server = Server(answer(SGLANG, "b6_forced_hermes_tool_call"))
    post(ShimTransport(server), ASK)
    sent = server.body()
    assert sent["return_token_ids"] is True
    assert sent["return_prompt_token_ids"] is True
    assert sent["return_meta_info"] is True
    assert sent["logprobs"] is True
    assert int(server.requests[0].headers["content-length"]) == len(server.requests[0].content)


@pytest.mark.parametrize("entry", [None, 1, "x", []])
def test_an_entry_of_the_logprobs_that_is_no_object_is_built_from_the_triples(entry: Any) -> None:
    """Found by fuzzing: a TypeError, where the ids and their log-probabilities were all there."""
    body = recording(SGLANG, "b6_forced_hermes_tool_call")["response"]
    right = [e["logprob"] for e in body["choices"][0]["logprobs"]["content"]]
    body["choices"][0]["logprobs"]["content"][0] = entry
    answer = post(ShimTransport(Server(httpx.Response(200, json=body)), dialect="sglang"), ASK)
    content = answer.json()["choices"][0]["logprobs"]["content"]
    assert [e["logprob"] for e in content] == pytest.approx(right)


def test_vllm_is_asked_for_its_own_flag_only():
    server = Server(answer(VLLM, "b6_forced_hermes_tool_call"))
    post(ShimTransport(server, dialect="vllm"), ASK)
    assert "return_meta_info" not in server.body()
    assert server.body()["return_token_ids"] is True


def test_what_hud_reads_agrees_with_what_is_on_record():
    for engine in (SGLANG, VLLM):
        server = Server(answer(engine, "b7_forced_text_and_two_tool_calls"))
        shim = ShimTransport(server)
        choice = post(shim, ASK).json()["choices"][0]
        turn = shim.turns[0]
        assert choice["prompt_token_ids"] == list(turn.prompt_ids)
        assert choice["token_ids"] == list(turn.output_ids)
        assert [c["logprob"] for c in choice["logprobs"]["content"]] == list(turn.output_logprobs)
        assert len(choice["message"]["tool_calls"]) == 2


def test_logprobs_are_built_from_the_triples_when_the_content_is_out_of_step():
    exchange = recording(SGLANG, "c_stop_token")
    exchange["response"]["choices"][0]["logprobs"]["content"].pop()
    server = Server(httpx.Response(200, json=exchange["response"]))
    shim = ShimTransport(server)
    content = post(shim, ASK).json()["choices"][0]["logprobs"]["content"]
    assert [entry["logprob"] for entry in content] == list(shim.turns[0].output_logprobs)


def test_each_turn_has_a_seed_of_its_own_and_a_retry_draws_the_same():
    failure = httpx.Response(503, json={"error": {"message": "busy"}})
    good = [answer(SGLANG, "c_stop_token") for _ in range(2)]
    server = Server(failure, *good)
    shim = ShimTransport(server, seed=7, slot=3)
    for _ in range(3):
        post(shim, ASK)
    seeds = [server.body(index)["seed"] for index in range(3)]
    assert seeds[0] == seeds[1] != seeds[2]
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert server.requests[0].headers[SLOT_HEADER] == "3"


def test_the_clients_timeout_reaches_the_server():
    """The published shim rebuilds the request without `extensions`: 0.5 s became 3 s."""
    server = Server(answer(SGLANG, "c_stop_token"))
    post(ShimTransport(server), ASK, timeout=0.5)
    assert server.requests[0].extensions["timeout"]["read"] == 0.5


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)],
)
def test_a_compressed_answer_is_decoded_exactly_once(encoding, pack):
    body = pack(json.dumps(recording(VLLM, "c_stop_token")["response"]).encode())
    headers = {"content-encoding": encoding, "content-type": "application/json", "x-kept": "1"}
    server = Server(httpx.Response(200, headers=headers, content=body))
    response = post(ShimTransport(server), ASK)
    assert response.json()["choices"][0]["token_ids"] == [12227]
    assert "content-encoding" not in response.headers
    assert int(response.headers["content-length"]) == len(response.content)
    assert response.headers["x-kept"] == "1"


def test_an_encoding_that_cannot_be_undone_is_named():
    headers = {"content-encoding": "br", "content-type": "application/json"}
    server = Server(httpx.Response(200, headers=headers, content=b"\x0b\x02\x80"))
    with pytest.raises(MissingTokenIds, match="content-encoding br"):
        post(ShimTransport(server), ASK)


def test_a_chunked_answer_loses_its_transfer_encoding():
    content = json.dumps(recording(VLLM, "c_stop_token")["response"]).encode()

    async def chunks():
        yield content[:100]
        yield content[100:]

    headers = {"transfer-encoding": "chunked", "content-type": "application/json"}
    server = Server(httpx.Response(200, headers=headers, content=chunks()))
    response = post(ShimTransport(server), ASK)
    assert "transfer-encoding" not in response.headers
    assert response.json()["choices"][0]["token_ids"] == [12227]


@pytest.mark.parametrize("engine", [SGLANG, VLLM])
@pytest.mark.parametrize("name", ["c_context_too_long", "c_bad_image_base64"])
def test_an_error_passes_untouched(engine, name):
    server = Server(answer(engine, name))
    shim = ShimTransport(server)
    response = post(shim, ASK)
    assert response.status_code == 400
    assert response.json() == recording(engine, name)["response"]
    assert shim.turns == []


def test_the_openai_client_sees_the_servers_own_error():
    shim = ShimTransport(Server(answer(VLLM, "c_context_too_long")))

    async def ask() -> None:
        async with httpx.AsyncClient(transport=shim) as http:
            client = AsyncOpenAI(api_key="none", base_url=BASE, http_client=http, max_retries=0)
            await client.chat.completions.create(
                model="tiny", messages=[], extra_body={"return_token_ids": True}
            )

    with pytest.raises(APIStatusError, match="maximum context length is 4096"):
        asyncio.run(ask())


def test_other_paths_pass_untouched():
    server = Server(answer(SGLANG, "c_models"))

    async def ask() -> Any:
        async with httpx.AsyncClient(transport=ShimTransport(server, seed=1, slot=2)) as client:
            return (await client.get(f"{BASE}/models")).json()

    assert asyncio.run(ask()) == recording(SGLANG, "c_models")["response"]
    assert SLOT_HEADER not in server.requests[0].headers


def test_a_request_without_ids_passes_untouched():
    exchange = recording(SGLANG, "a_text__noflags")
    server = Server(answer(SGLANG, "a_text__noflags"))
    shim = ShimTransport(server)
    body = {"model": "tiny", "messages": []}
    assert post(shim, body).json() == exchange["response"]
    assert server.body() == body
    assert shim.turns == []


def test_a_stream_with_ids_is_refused_and_one_without_passes():
    with pytest.raises(LabError, match="stream=False"):
        post(ShimTransport(Server()), ASK | {"stream": True})
    exchange = recording(VLLM, "c_stream_plain_usage")
    text = exchange["response"]["__text__"]
    headers = {"content-type": exchange["content_type"]}
    server = Server(httpx.Response(200, headers=headers, text=text))
    assert post(ShimTransport(server), {"messages": [], "stream": True}).text == text


def test_ids_that_did_not_come_raise_through_the_openai_client_at_once():
    """Neither re-tokenised nor retried: a retry would only sample again."""
    server = Server(answer(SGLANG, "a_text__noflags"))
    shim = ShimTransport(server)

    async def ask() -> None:
        async with httpx.AsyncClient(transport=shim) as http:
            client = AsyncOpenAI(api_key="none", base_url=BASE, http_client=http, max_retries=2)
            await client.chat.completions.create(
                model="tiny", messages=[], extra_body={"return_token_ids": True}
            )

    with pytest.raises(MissingTokenIds, match="did not come"):
        asyncio.run(ask())
    assert len(server.requests) == 1


def test_an_html_page_with_status_200_is_not_an_answer():
    server = Server(httpx.Response(200, text="<html>router</html>"))
    with pytest.raises(MissingTokenIds, match="not a JSON object"):
        post(ShimTransport(server), ASK)


def test_an_id_outside_the_vocabulary_means_another_model():
    server = Server(answer(SGLANG, "c_stop_token"))
    with pytest.raises(LabError, match="another model"):
        post(ShimTransport(server, vocab_size=1000), ASK)


def test_the_turn_on_record_is_the_servers_and_knows_its_weights_and_its_end():
    shim = ShimTransport(Server(answer(SGLANG, "b9_truncated_tool_call")))
    post(shim, ASK | {"max_tokens": 15})
    (turn,) = shim.turns
    assert isinstance(turn, Turn)
    assert turn.truncated
    assert turn.finish_reason == "length"
    assert turn.weight_version == "default"


def test_of_several_choices_each_has_ids_and_the_first_is_the_turn():
    shim = ShimTransport(Server(answer(VLLM, "c_n2")))
    choices = post(shim, ASK | {"n": 2}).json()["choices"]
    assert [len(choice["token_ids"]) for choice in choices] == [12, 12]
    assert shim.turns[0].output_ids == tuple(choices[0]["token_ids"])


def test_what_the_policy_must_never_say_is_forbidden_by_bias_and_refused_if_said() -> None:
    """vLLM and sglang would sample an image pad, and the trainer would look for its image."""
    said = recording(VLLM, "a_text__hud_return_token_ids_logprobs")["response"]
    ids = said["choices"][0]["token_ids"]
    free = max(ids) + 1
    server = Server(httpx.Response(200, json=said), httpx.Response(200, json=said))
    shim = ShimTransport(server, forbidden_ids=(free, free + 1))
    post(shim, ASK | {"logit_bias": {"5": 1.0}})
    assert server.body()["logit_bias"] == {"5": 1.0, str(free): -100.0, str(free + 1): -100.0}
    with pytest.raises(LabError, match=f"sampled id {ids[0]}, which the policy must never say"):
        post(ShimTransport(server, forbidden_ids=(ids[0],)), ASK)


def test_a_server_that_needs_no_bias_is_sent_none() -> None:
    server = Server(answer(SGLANG, "a_text__hud_return_token_ids_logprobs"))
    post(ShimTransport(server), ASK)
    assert "logit_bias" not in server.body()
