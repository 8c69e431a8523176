"""A request says everything about sampling, so that a server's defaults never count."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from transformers import GenerationConfig

from cua_lab.serving.client import ChatClient, EngineRefused
from cua_lab.serving.sampling_request import NEUTRAL, sampling_request, stated, unapplied
from cua_lab.serving.shim import ShimTransport

QWEN_3 = {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
QWEN_2_5 = {"temperature": 1e-6, "top_p": 0.001, "top_k": 1, "repetition_penalty": 1.05}
"""What these checkpoints' generation_config.json say, and servers take where nothing is said."""


def on_the_wire(request: dict[str, Any]) -> dict[str, Any]:
    """The body that an SDK makes of it."""
    body = dict(request)
    return body | body.pop("extra_body", {})


@pytest.mark.parametrize("defaults", [QWEN_3, QWEN_2_5], ids=["qwen3", "qwen2.5"])
@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_nothing_is_left_for_a_server_to_fill_in(
    defaults: dict[str, float], temperature: float
) -> None:
    """Six seeds, one answer: top_k 1 had come from the checkpoint (NVIDIA-NeMo/RL#3497)."""
    sent = on_the_wire(sampling_request(temperature=temperature, max_tokens=8))
    used = defaults | {k: v for k, v in sent.items() if v is not None}
    assert {k: used[k] for k in NEUTRAL} == {**NEUTRAL, "temperature": temperature}


def test_options_may_have_other_values_and_unknown_ones_are_refused() -> None:
    sent = on_the_wire(sampling_request(temperature=1, max_tokens=8, top_k=5, top_p=None))
    assert (sent["top_k"], sent["top_p"], sent["max_tokens"]) == (5, 1.0, 8)
    with pytest.raises(TypeError, match="top_q"):
        sampling_request(temperature=1, max_tokens=8, top_q=1)


def test_a_server_that_knows_only_openais_fields_is_sent_no_others() -> None:
    sent = sampling_request(temperature=1, max_tokens=8, standard_only=True)
    assert "extra_body" not in sent
    assert {"top_p", "presence_penalty", "frequency_penalty"} < set(sent)


def test_null_counts_as_unsaid() -> None:
    assert stated({"top_p": None, "top_k": 7, "x": None}) == {**NEUTRAL, "top_k": 7, "x": None}


def test_the_shim_says_what_an_agents_own_settings_leave_out() -> None:
    seen: list[dict[str, Any]] = []

    def server(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return httpx.Response(400, json={"message": "enough"})

    async def ask() -> None:
        async with httpx.AsyncClient(transport=ShimTransport(httpx.MockTransport(server))) as http:
            body = {"messages": [], "return_token_ids": True, "temperature": 0.5, "top_k": None}
            await http.post("http://engine/v1/chat/completions", json=body)

    asyncio.run(ask())
    assert {k: seen[0][k] for k in NEUTRAL} == {**NEUTRAL, "temperature": 0.5}


def test_a_server_that_refuses_a_field_is_met_with_the_option_that_leaves_it_out() -> None:
    words = {"error": {"message": "Unrecognized request argument supplied: top_k"}}
    transport = httpx.MockTransport(lambda request: httpx.Response(400, json=words))

    async def ask() -> None:
        async with httpx.AsyncClient(transport=transport, base_url="http://server/v1/") as http:
            request = sampling_request(temperature=0, max_tokens=8)
            await ChatClient(http).chat.completions.create(model="m", messages=[], **request)

    with pytest.raises(EngineRefused, match=r"top_k.*--standard-fields"):
        asyncio.run(ask())


def test_what_the_embedded_engine_does_not_apply_can_be_named() -> None:
    config = GenerationConfig(top_k=20, top_p=0.8, temperature=1.0)
    assert unapplied(config) == {"top_k": 20, "top_p": 0.8}
    assert unapplied(GenerationConfig()) == {}
