"""Predictions: a bad answer is no point, a refusal is an error, screens can be dealt elsewhere."""

import asyncio
import base64
import io
import json
from dataclasses import replace

import httpx
import pytest
from PIL import Image

from cua_lab.dataset.grounding import from_row
from cua_lab.dataset.predict import (
    Question,
    predict_with_server,
    questions_of,
    sized,
)
from cua_lab.dataset.prompt_format import PromptFormat
from cua_lab.errors import LabError

CLICK = PromptFormat(actions=("click",))


def samples(count: int = 3):
    return [
        from_row(
            {
                "screenshot": f"{'abc'[n]}.png",
                "instruction": f"Open {n}",
                "action": "click",
                "coordinates": [0.5, 0.5],
                "bbox": [0.4, 0.4, 0.6, 0.6],
                "coordinate_space": "0-1",
                "id": str(n),
            }
        )
        for n in range(count)
    ]


def answers(*messages, status: int = 200, asked: list | None = None) -> httpx.AsyncClient:
    """A server that says these messages in turn."""
    said = iter(messages)

    def handler(request: httpx.Request) -> httpx.Response:
        if asked is not None:
            asked.append(json.loads(request.content))
        if status != 200:
            return httpx.Response(status, json={"message": "no such model"})
        choice = {"index": 0, "finish_reason": "stop", "message": next(said)}
        return httpx.Response(200, json={"id": "1", "choices": [choice], "model": "m"})

    return httpx.AsyncClient(transport=httpx.MockTransport(handler), base_url="http://server/v1/")


def calling(**arguments) -> dict:
    function = {"name": "computer", "arguments": json.dumps(arguments)}
    call = {"id": "c", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def predict(http: httpx.AsyncClient, questions) -> list:
    return asyncio.run(predict_with_server(http, questions, CLICK, model="m", concurrency=1))


def test_calls_are_read_whether_the_server_parsed_them_or_not(shots) -> None:
    raw = '<tool_call>\n{"name": "computer", "arguments": {"action": "click", "x": 0, "y": 0}}\n'
    http = answers(
        calling(action="click", x=1000, y=0),
        {"role": "assistant", "content": raw + "</tool_call>"},
        {"role": "assistant", "content": "I would click there."},
    )
    points = predict(http, questions_of(samples(), shots))
    assert points[0] == pytest.approx((1023 / 1024, 0.0))
    assert points[1:] == [(0.0, 0.0), None]


def test_a_refusal_of_the_server_is_not_a_miss(shots) -> None:
    with pytest.raises(LabError, match="http://server/v1/ refused: status 404: no such model"):
        predict(answers(status=404), questions_of(samples(1), shots))


def test_a_server_that_is_not_there_is_named(shots) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    http = httpx.AsyncClient(transport=httpx.MockTransport(handler), base_url="http://server/v1/")
    with pytest.raises(LabError, match="cannot reach http://server/v1/: refused"):
        asyncio.run(
            predict_with_server(
                http, [Question(samples(1)[0], shots / "a.png")], CLICK, model="m", concurrency=1
            )
        )


def shown(body: dict) -> Image.Image:
    url = body["messages"][-1]["content"][1]["image_url"]["url"]
    return Image.open(io.BytesIO(base64.b64decode(url.split(",", 1)[1]))).convert("RGB")


def test_shuffled_screens_are_never_the_samples_own_and_blank_ones_are_blank(shots) -> None:
    for name, question in zip("abc", questions_of(samples(), shots, "shuffled"), strict=True):
        assert question.screenshot.name != f"{name}.png"
    with pytest.raises(LabError, match="all samples have the same screenshot"):
        questions_of(samples(1), shots, "shuffled")
    asked: list = []
    predict(
        answers(calling(action="click", x=1, y=1), asked=asked),
        questions_of(samples(1), shots, "blank"),
    )
    assert shown(asked[0]).getextrema() == ((232, 232),) * 3
    assert asked[0]["temperature"] == 0.0
    assert asked[0]["tools"][0]["function"]["name"] == "computer"


def test_a_screenshot_that_is_not_there_stops_the_evaluation(shots) -> None:
    one = samples(1)[0]
    assert sized(one, shots).image_size == (1024, 768)
    with pytest.raises(LabError, match=r"gone.png cannot be read"):
        sized(replace(one, screenshot="gone.png"), shots)
    with pytest.raises(LabError, match=r"gone.png cannot be read"):
        predict(answers(), [Question(one, shots / "gone.png")])


@pytest.mark.parametrize("standard", [False, True])
def test_a_greedy_question_says_everything_about_sampling(shots, standard: bool) -> None:
    """repetition_penalty 1.05 of Qwen2.5-VL's generation_config would change greedy answers."""
    asked: list = []
    http = answers(calling(action="click", x=1, y=1), asked=asked)
    question = questions_of(samples(1), shots)
    asyncio.run(predict_with_server(http, question, CLICK, model="m", standard_fields=standard))
    said = {"temperature": 0.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    more = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    assert said.items() <= asked[0].items()
    assert {k: asked[0][k] for k in more if k in asked[0]} == ({} if standard else more)
