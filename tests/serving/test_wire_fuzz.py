"""Whatever a client sends, the server answers, and never with a 500.

Bodies are real requests with a field, at any depth, replaced by a value that JSON allows; `raw`
cases are those that JSON itself cannot carry.
"""

import asyncio
import copy
import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cua_lab.engine.engine import Engine
from cua_lab.policy.policy import Policy
from cua_lab.policy.template import image_part
from cua_lab.serving.server import create_app
from tests.fuzzing import places
from tests.serving.conftest import screen

CHAT, GENERATE = "/v1/chat/completions", "/generate"
TOOL = {"type": "function", "function": {"name": "computer", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "computer", "arguments": '{"x": 1}'}}
CHAT_BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Use the screen."},
        {"role": "user", "content": [{"type": "text", "text": "Go."}, image_part(screen(0))]},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ],
    "tools": [TOOL],
    "tool_choice": "auto",
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "n": 1,
    "seed": 3,
    "stop": ["x"],
    "stop_token_ids": [3],
    "logit_bias": {"4": -100},
    "logprobs": True,
    "top_logprobs": 1,
    "max_tokens": 2,
    "min_tokens": 0,
    "return_token_ids": True,
    "return_meta_info": True,
    "stream_options": {},
    "input_ids": None,
    "ignore_eos": False,
    "skip_special_tokens": True,
}
GENERATE_BODY: dict[str, Any] = {
    "text": "hello",
    "input_ids": None,
    "image_data": None,
    "sampling_params": {"max_new_tokens": 2, "temperature": 0, "stop": None, "n": 1, "seed": 1},
    "return_logprob": True,
    "logprob_start_len": 0,
    "top_logprobs_num": 1,
    "return_prompt_token_ids": True,
}
HUGE = 10**400
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**64), HUGE, -HUGE, 0.5, -0.5),
    *(1e-40, 1e308, float("inf"), float("nan"), "", "x", "0", "\ud83d", "\x00", "<|im_end|>"),
    *("data:image/png;base64,", "[" * 6000, "1" * 5000, [], {}, [None], [""], [[]], [{}]),
    *({"": None}, {"function": None}, {"function": "computer"}, {"function": {"name": []}}),
    *({"image_url": None}, {"image_url": {"url": None}}, {"type": "text", "text": 1}),
    *({"type": "image_url"}, {"-1": 1}, {"9" * 5000: 1}, {"²": 1}, {"1": HUGE}, [1.5], [-1]),
    *([2**40], [HUGE], ["\ud83d"], [True]),
)


def paths(value: Any) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, the value itself left out."""
    return places(value)[1:]


def replaced(body: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The body with another value in one place."""
    changed = copy.deepcopy(body)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


CASES = [
    (path, body, place)
    for path, body in ((CHAT, CHAT_BODY), (GENERATE, GENERATE_BODY))
    for place in paths(body)
]
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(ODD),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def engine(tiny: Policy) -> Engine:
    return Engine(tiny, context_length=512)


def send(engine: Engine, path: str, raw: bytes) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(engine), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            headers = {"content-type": "application/json"}
            return await client.post(path, content=raw, headers=headers)

    return asyncio.run(ask())


def answered(engine: Engine, path: str, body: Any) -> httpx.Response:
    response = send(engine, path, json.dumps(body).encode())
    assert response.status_code in (200, 400), (response.status_code, body)
    return response


def test_the_body_that_is_changed_is_itself_answered(engine: Engine) -> None:
    assert answered(engine, CHAT, CHAT_BODY).status_code == 200
    assert answered(engine, GENERATE, GENERATE_BODY).status_code == 200


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, (case[0], *case[2]))))
def test_no_odd_value_in_any_place_is_the_servers_fault(engine: Engine, case: Any) -> None:
    path, body, place = case
    for value in ODD:
        answered(engine, path, replaced(body, place, value))


@given(case=st.sampled_from(CASES), value=json_values)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_value_that_json_allows_is_the_servers_fault(
    engine: Engine, case: Any, value: Any
) -> None:
    path, body, place = case
    answered(engine, path, replaced(body, place, value))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"\xff\xfe",
        b'{"seed": ' + b"1" * 5000 + b"}",
        b'{"messages": ' + b"[" * 6000 + b"]" * 6000 + b"}",
        b'{"messages": ' + b'{"a":' * 6000 + b"1" + b"}" * 6001,
        b'{"messages": [{"role": "user", "content": "a"}], "tools": '
        + b'[{"a":' * 700
        + b"1"
        + b"}]" * 700
        + b"}",
    ],
    ids=range(8),
)
@pytest.mark.parametrize("path", [CHAT, GENERATE, "/update_weights_from_disk"])
def test_a_body_that_is_no_request_is_a_400(engine: Engine, path: str, raw: bytes) -> None:
    assert send(engine, path, raw).status_code == 400


@pytest.mark.parametrize("value", [v for v in ODD if v is not None], ids=range(len(ODD) - 1))
def test_no_odd_folder_or_version_is_the_servers_fault(engine: Engine, value: Any) -> None:
    path = "/update_weights_from_disk"
    assert answered(engine, path, {"model_path": value}).status_code == 400
    version = {"model_path": "nowhere", "weight_version": value}
    assert answered(engine, path, version).status_code == 400


@pytest.mark.parametrize("slot", ["", "-1", "²", "x", "9" * 5000, "7"])
def test_a_slot_that_is_none_is_a_400(engine: Engine, slot: str) -> None:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(engine), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            headers = {"x-cua-lab-slot": slot.encode()}
            return await client.post(CHAT, json=CHAT_BODY, headers=headers)

    assert asyncio.run(ask()).status_code == 400


@pytest.mark.parametrize(
    "body",
    ['{"text": "\\ud83d"}', '{"n": ' + "1" * 5000 + "}", "[" * 6000 + "]" * 6000, "NaN", "1e999"],
    ids=["surrogate", "digits", "nested", "nan", "overflow"],
)
def test_what_a_policy_says_is_never_a_500(
    engine: Engine, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sampled `\\ud83d` (hermes-agent#104134, aider#3693) is a bad call, not a lost episode."""
    said = f'<tool_call>\n{{"name": "computer", "arguments": {body}}}\n</tool_call>'
    monkeypatch.setattr(engine.detokenizer, "text", lambda ids, *, skip_special=True: said)
    body_sent = CHAT_BODY | {"stop": None}
    message = answered(engine, CHAT, body_sent).json()["choices"][0]["message"]
    calls: list[Any] = message.get("tool_calls", [])
    if "ud83d" in body:
        assert calls[0]["function"]["arguments"] == body
    history = [*CHAT_BODY["messages"][:2], message | {"role": "assistant"}]
    assert answered(engine, CHAT, body_sent | {"messages": history}).status_code == 200
