"""An episode keeps what was done and seen, and a failure never becomes a reward of 0."""

import asyncio
import io
import json
from typing import Any

import httpx
import pytest
from hud.eval import LocalRuntime, Task
from PIL import Image

from cua_lab.computer.config import ToolConfig
from cua_lab.envs.lab.env import build
from cua_lab.play.agent import LabAgentConfig
from cua_lab.play.episode import Episode, play, play_slots
from cua_lab.play.scripted import ScriptedTransport

CONFIG = LabAgentConfig(
    tool=ToolConfig(coordinate_space="0-1000", pace_ms=0),
    stop_on={"length", "malformed_tool_call"},
)
CLICK = Task(env="lab", id="targets-click", args={"seed": 3}, slug="targets-click")
GAME = Task(env="lab", id="2048-score", args={"seed": 3, "turns": 3}, slug="2048-score")


def played(task: Task, transport: httpx.AsyncBaseTransport, build: Any = build) -> Episode:
    runtime = LocalRuntime(build)
    return asyncio.run(play(task, CONFIG, transport, runtime=runtime, id="e", group="g"))


def answering(*messages: dict[str, Any], status: int = 200) -> httpx.MockTransport:
    """A server that gives these assistant messages in turn."""
    queue = iter(messages)

    def handle(request: httpx.Request) -> httpx.Response:
        if status != 200:
            return httpx.Response(status, json={"object": "error", "message": "too long"})
        message = {"role": "assistant", "content": None} | next(queue)
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
        return httpx.Response(200, json=body | {"choices": [choice]})

    return httpx.MockTransport(handle)


def call(arguments: str | dict[str, Any], id: str = "c") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": id, "type": "function", "function": {"name": "computer", "arguments": text}}


def test_an_episode_has_a_screenshot_before_each_turn_and_one_after_the_last() -> None:
    player = ScriptedTransport(lambda messages: {"action": "press", "keys": ["left", "up"]})
    episode = played(GAME, player)
    assert (episode.status, len(episode.actions), len(episode.screenshots)) == ("completed", 3, 4)
    assert [action.keys for action in episode.actions] == [2, 2, 2]
    assert episode.valid_calls == 1.0
    assert episode.actions[-1].screenshot == episode.screenshots[-1]
    assert Image.open(io.BytesIO(episode.screenshots[0])).size == (128, 128)
    assert episode.info["state"]["score"] / 1000 == episode.reward


def test_what_was_said_before_a_call_is_kept_and_goes_back_to_the_model_in_its_place() -> None:
    asked: list[Any] = []
    said = [
        {"content": f"board {turn} row", "tool_calls": [call({"action": "press", "keys": ["up"]})]}
        for turn in range(3)
    ]
    server = answering(*said)
    listening = httpx.MockTransport(
        lambda request: (asked.append(json.loads(request.content)), server.handler(request))[1]
    )
    episode = played(GAME, listening)
    assert [action.thought for action in episode.actions] == [m["content"] for m in said]
    assert [action.valid for action in episode.actions] == [True] * 3
    history = [m["content"] for m in asked[-1]["messages"] if m["role"] == "assistant"]
    assert history == ["board 0 row", "board 1 row"]


def test_a_bad_call_is_an_invalid_action_and_not_a_failure() -> None:
    episode = played(CLICK, answering({"tool_calls": [call({"action": "click", "x": 4165})]}))
    assert (episode.status, episode.reward, episode.valid_calls) == ("completed", 0.0, 0.0)
    assert episode.actions[0].arguments == {"action": "click", "x": 4165}
    assert "y missing" in episode.actions[0].text


def test_arguments_that_are_no_json_end_the_episode_as_truncated_when_the_recipe_says_so() -> None:
    """hud-python#480: cut-off arguments are not run, and a training run stops there."""
    episode = played(CLICK, answering({"tool_calls": [call('{"action": "cli')]}))
    assert (episode.status, episode.reward) == ("truncated", 0.0)
    assert episode.actions[0].arguments is None


def test_an_answer_without_a_call_is_an_invalid_action() -> None:
    episode = played(CLICK, answering({"content": "I would click."}))
    assert (episode.valid_calls, episode.actions[0].text) == (0.0, "I would click.")


def test_two_calls_in_one_answer_are_one_action_with_the_last_screen() -> None:
    calls = [call({"action": "press", "keys": ["left"]}, id=name) for name in ("a", "b")]
    episode = played(GAME, answering({"tool_calls": calls}, {"content": "done"}))
    assert episode.actions[0].valid
    assert len(episode.screenshots) == 3, "the first one, and one for each call"
    assert episode.actions[0].screenshot == episode.screenshots[2]


def test_finish_is_a_valid_action_that_ends_the_episode() -> None:
    episode = played(GAME, answering({"tool_calls": [call({"action": "finish"})]}))
    assert (episode.status, len(episode.actions), episode.valid_calls) == ("completed", 1, 1.0)


def test_a_server_that_refuses_makes_a_failed_episode_with_its_words() -> None:
    episode = played(CLICK, answering(status=400))
    assert (episode.status, episode.reward) == ("failed", None)
    assert "too long" in (episode.error or "")


def test_a_grader_that_cannot_read_its_state_makes_a_failed_episode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A grader that could not reach its game is a failure, not a zero."""
    from cua_lab.desktop.apps import Targets

    monkeypatch.setattr(Targets, "state", lambda self: {})
    episode = played(CLICK, ScriptedTransport(lambda m: {"action": "click", "x": 1, "y": 1}))
    assert (episode.status, episode.reward) == ("failed", None)
    assert "state" in (episode.error or "")


def test_reward_and_failure_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="a failed episode has none"):
        Episode("e", "g", "t", (), (), (), reward=0.0, status="failed")


def test_which_slot_plays_what_does_not_depend_on_time() -> None:
    order: list[tuple[int, int]] = []

    def plan(index: int) -> Any:
        async def run(slot: int) -> int:
            await asyncio.sleep(0.001 * ((index * 7) % 5))
            order.append((index, slot))
            return index

        return run

    left: list[int] = []
    plans = [plan(index) for index in range(7)]
    results = asyncio.run(play_slots(plans, concurrency=3, leave=left.append))
    assert results == list(range(7))
    assert dict(order) == {index: index % 3 for index in range(7)}
    assert sorted(left) == [0, 1, 2]


def test_a_slot_leaves_even_when_its_episode_breaks() -> None:
    """A round of the engine that waits for a dead slot would wait for ever."""
    left: list[int] = []

    async def broken(slot: int) -> None:
        raise RuntimeError("boom")

    with pytest.raises(ExceptionGroup):
        asyncio.run(play_slots([broken], concurrency=4, leave=left.append))
    assert left == [0]
