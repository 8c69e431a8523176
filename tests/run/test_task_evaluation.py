"""Evaluation on tasks: honest rates, film strips, and any server in the policy's place."""

import asyncio
import json

import httpx
import pytest
from hud.eval import LocalRuntime

from cua_lab.computer.config import ToolConfig
from cua_lab.env_package import env_package
from cua_lab.envs.lab.env import build
from cua_lab.errors import LabError
from cua_lab.play.agent import LabAgentConfig
from cua_lab.play.api_keys import read_key
from cua_lab.play.episode import Episode
from cua_lab.run import task_evaluation as evaluate
from cua_lab.run.task_evaluation import (
    Keyed,
    evaluation_plans,
    play_with_server,
    summarise,
)

LAB = env_package("lab")
CONFIG = LabAgentConfig(
    model="m",
    system_prompt=None,
    tool=ToolConfig(actions=("click",), coordinate_space="0-1000", pace_ms=0),
    completion_kwargs={"temperature": 0.5},
)


def episode(task: str, n: int, success: bool | None, status: str = "completed") -> Episode:
    reward = None if status == "failed" else float(bool(success))
    return Episode(f"{task}-{n}", "g", task, (), (), (), reward, status, success)


def test_failed_episodes_are_counted_and_enter_no_rate() -> None:
    report = summarise(
        [
            episode("a", 0, True),
            episode("a", 1, False),
            episode("a", 2, None, "failed"),
            episode("b", 0, None),
        ]
    )
    assert (report.overall.success.hits, report.overall.success.count) == (1, 2)
    assert report.by_task["a"].failed == 1
    assert report.by_task["a"].reward.mean == 0.5
    assert report.by_task["b"].success is None
    found = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert [entry["status"] for entry in found["episodes"]].count("failed") == 1


def test_plans_are_named_by_slug_or_by_template_and_start_as_the_seed_says() -> None:
    plans = evaluation_plans(LAB, ["targets-click"], args={"level": 2}, episodes=3, seed=1)
    assert [plan.task.id for plan in plans] == ["targets-click"] * 3
    assert len({plan.task.args["seed"] for plan in plans}) == 3
    assert all(plan.task.args["level"] == 2 for plan in plans)
    again = evaluation_plans(LAB, ["targets-click-1"], args={"level": 2}, episodes=3, seed=1)
    assert [plan.task.args for plan in again] == [plan.task.args for plan in plans]
    with pytest.raises(LabError, match="unknown slug 'target-click'"):
        evaluation_plans(LAB, ["target-click"], args={}, episodes=1, seed=0)


def test_any_server_plays_and_its_key_goes_with_every_request(monkeypatch) -> None:
    """No token ids are asked for: an ordinary OpenAI-compatible server has none."""
    asked = []

    def server(request: httpx.Request) -> httpx.Response:
        asked.append((request, json.loads(request.content)))
        function = {"name": "computer", "arguments": '{"action": "click", "x": 500, "y": 500}'}
        call = {"id": "c", "type": "function", "function": function}
        message = {"role": "assistant", "content": "", "tool_calls": [call]}
        choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
        body = {"id": "1", "model": "m", "created": 0, "object": "chat.completion"}
        return httpx.Response(200, json=body | {"choices": [choice]})

    monkeypatch.setattr(evaluate.httpx, "AsyncHTTPTransport", lambda: httpx.MockTransport(server))
    plans = evaluation_plans(LAB, ["targets-click"], args={}, episodes=2, seed=0)
    played = asyncio.run(
        play_with_server("http://server/v1/", plans, CONFIG, LocalRuntime(build), key="secret")
    )
    assert [one.status for one in played] == ["completed"] * 2
    assert len(asked) == 2
    assert len({body["seed"] for _, body in asked}) == 2, "the plan's seed goes with each turn"
    for request, body in asked:
        assert str(request.url) == "http://server/v1/chat/completions"
        assert request.headers["authorization"] == "Bearer secret"
        assert not body.get("return_token_ids")
    html = summarise(played).to_html("Clicks <here>")
    assert html.count("data:image/png;base64,") == 2
    assert "Clicks &lt;here&gt;" in html
    assert "http://" not in html
    assert "secret" not in html + json.dumps(summarise(played).to_json())


def test_a_key_file_that_cannot_be_used_is_named(tmp_path) -> None:
    with pytest.raises(LabError, match=r"none cannot be read \(No such file"):
        read_key(str(tmp_path / "none"))
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "empty").chmod(0o600)
    with pytest.raises(LabError, match="empty must hold one key"):
        read_key(str(tmp_path / "empty"))
    assert Keyed(httpx.MockTransport(lambda r: httpx.Response(200)), None)


def played_by(answer, monkeypatch, **options) -> list[Episode]:
    """Six episodes, one at a time, against a server that is one function."""
    monkeypatch.setattr(evaluate.httpx, "AsyncHTTPTransport", lambda: httpx.MockTransport(answer))
    plans = evaluation_plans(LAB, ["targets-click"], args={}, episodes=6, seed=0)
    playing = play_with_server(
        "http://server/v1/", plans, CONFIG, LocalRuntime(build), concurrency=1, **options
    )
    return asyncio.run(playing)


def test_a_server_that_dies_midway_costs_no_more_desktops(monkeypatch, caplog) -> None:
    """A table over the few that had ended early, status 0, and a traceback for each call."""
    asked: list[str] = []

    def dying(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        raise httpx.ConnectError("All connection attempts failed")

    played = played_by(dying, monkeypatch)
    assert [one.status for one in played] == ["failed"] * 6
    assert "cannot reach http://server/v1/chat/completions: All connection" in played[0].error
    assert played[-1].error == (
        "not played: cannot reach http://server/v1: All connection attempts failed; does the"
        " server run there?"
    )
    assert asked.count("/v1/models") == 1
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (httpx.Response(200, html="<html>hello</html>"), "status 200 with text/html"),
        (httpx.Response(200, json={"detail": "x"}), "status 200 without choices"),
        (httpx.Response(200, json={"choices": []}), "status 200 with no choice"),
        (httpx.Response(200, json={"choices": [None]}), "status 200 with no choice"),
        (httpx.Response(404, json={"detail": "Not Found"}), "status 404"),
    ],
)
def test_an_answer_that_is_no_completion_is_said_in_the_servers_words(
    answer, words, monkeypatch
) -> None:
    """They were "Expecting value" and "list index out of range"."""
    played = played_by(lambda request: answer, monkeypatch)
    assert all(one.status == "failed" and words in one.error for one in played[:1])
