"""An episode keeps what was done and seen, and a failure never becomes a reward of 0."""

import asyncio
import io
import json
import re
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
from cua_lab.stitching.turn import Turn

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
    assert all(action.well_formed for action in episode.actions)
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
    assert (episode.status, episode.reward) == ("completed", 0.0)
    assert not episode.actions[0].well_formed
    assert episode.actions[0].arguments == {"action": "click", "x": 4165}
    assert "y missing" in episode.actions[0].text


def test_arguments_that_are_no_json_end_the_episode_as_truncated_when_the_recipe_says_so() -> None:
    """hud-python#480: cut-off arguments are not run, and a training run stops there."""
    episode = played(CLICK, answering({"tool_calls": [call('{"action": "cli')]}))
    assert (episode.status, episode.reward) == ("truncated", 0.0)
    assert episode.actions[0].arguments is None


def test_an_answer_without_a_call_is_an_invalid_action() -> None:
    episode = played(CLICK, answering({"content": "I would click."}))
    (action,) = episode.actions
    assert (action.well_formed, action.text) == (False, "I would click.")


def test_two_calls_in_one_answer_are_one_action_with_the_last_screen() -> None:
    calls = [call({"action": "press", "keys": ["left"]}, id=name) for name in ("a", "b")]
    episode = played(GAME, answering({"tool_calls": calls}, {"content": "done"}))
    assert episode.actions[0].valid
    assert len(episode.screenshots) == 3, "the first one, and one for each call"
    assert episode.actions[0].screenshot == episode.screenshots[2]
    assert [action.saw for action in episode.actions] == [0, 2]


def test_finish_is_a_valid_action_that_ends_the_episode() -> None:
    episode = played(GAME, answering({"tool_calls": [call({"action": "finish"})]}))
    (action,) = episode.actions
    assert (episode.status, action.well_formed) == ("completed", True)


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

    async def play_one(index: int, slot: int) -> int:
        await asyncio.sleep(0.001 * ((index * 7) % 5))
        order.append((index, slot))
        return index

    left: list[int] = []
    results = asyncio.run(play_slots(range(7), play_one, concurrency=3, leave=left.append))
    assert results == list(range(7))
    assert dict(order) == {index: index % 3 for index in range(7)}
    assert sorted(left) == [0, 1, 2]


def test_a_slot_leaves_even_when_its_episode_breaks() -> None:
    """A round of the engine that waits for a dead slot would wait forever."""
    left: list[int] = []

    async def broken(plan: str, slot: int) -> None:
        raise RuntimeError("boom")

    with pytest.raises(ExceptionGroup):
        asyncio.run(play_slots(["plan"], broken, concurrency=4, leave=left.append))
    assert left == [0]


SURROGATE = r'{"action": "type", "text": "\ud83d"}'
BAD_CALLS = {
    "half of a surrogate pair": SURROGATE,
    "the same, not escaped": SURROGATE.encode().decode("unicode_escape"),
    "as a key": r'{"action": "press", "keys": ["\udc00"]}',
    "as a name": r'{"\ud83d": 1}',
    "4,301 digits": '{"action": "click", "x": %s, "y": 1}' % ("9" * 4301),
    "6,000 nested objects": '{"a": ' * 6000,
    "6,000 nested lists": '{"action": "press", "keys": %s' % ("[" * 6000),
    "600 nested lists": '{"action": "press", "keys": ' + "[" * 600 + "]" * 600 + "}",
    "no number": '{"action": "click", "x": NaN, "y": 1e999}',
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_whatever_a_policy_samples_is_at_worst_a_bad_call(name: str) -> None:
    """hermes-agent#104134, aider#3693: such an episode is graded, and any file can hold it."""

    def handle(request: httpx.Request) -> httpx.Response:
        message = {"role": "assistant", "content": "\udc00", "tool_calls": [call(BAD_CALLS[name])]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
        content = json.dumps(body | {"choices": [choice]}).encode()  # ASCII, as a server would
        return httpx.Response(200, content=content)

    episode = played(GAME, httpx.MockTransport(handle))
    assert episode.status != "failed", episode.error
    assert episode.reward == 0.0
    assert not any(action.well_formed for action in episode.actions)
    for action in episode.actions:
        (json.dumps(action.arguments, ensure_ascii=False) + action.text).encode()


def test_a_tool_that_is_cancelled_from_within_is_one_failed_episode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def cancelled(self: Any, arguments: dict[str, Any]) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr("cua_lab.computer.tool.ComputerTool.execute", cancelled)
    episode = played(CLICK, ScriptedTransport(lambda m: {"action": "click", "x": 1, "y": 1}))
    assert (episode.status, episode.reward) == ("failed", None)
    assert "cancelled from within" in (episode.error or "")


def test_a_run_that_is_cancelled_stays_cancelled() -> None:
    async def stopped() -> None:
        asked = asyncio.Event()

        async def wait(request: httpx.Request) -> httpx.Response:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        transport = httpx.MockTransport(wait)
        runtime = LocalRuntime(build)
        playing = asyncio.create_task(
            play(CLICK, CONFIG, transport, runtime=runtime, id="e", group="g")
        )
        await asked.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing

    asyncio.run(stopped())


def graded_as(frame: Any) -> Episode:
    """An episode of an env whose grader answers with this; `...` is no answer at all."""
    env = build()

    @env.template(id="ends")
    async def ends() -> Any:
        yield {"prompt": "Go."}
        if frame is not ...:
            yield frame

    config = CONFIG.model_copy(update={"first_screenshot": False})
    task = Task(env="lab", id="ends", args={}, slug="ends")
    transport = answering({"content": "done"})
    runtime = LocalRuntime(lambda _: env)
    return asyncio.run(play(task, config, transport, runtime=runtime, id="e", group="g"))


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        (..., "ended without a grade"),
        ({"score": 1e308}, "the grader's reward is 1e\\+308"),
        ({"score": -1e200}, "the grader's reward is -1e\\+200"),
        ({"score": 1.0, "info": {"success": "false"}}, "success 'false'; expected true or false"),
        ({"score": 1.0, "info": {"success": 0.5}}, "success 0.5"),
        ({"score": 1.0, "info": {"success": []}}, "success \\[\\]"),
    ],
)
def test_a_grade_that_is_none_is_one_failed_episode_with_its_cause(frame: Any, cause: str) -> None:
    """Not a reward of 0, not a success because some text is not empty, and not the end of a run."""
    episode = graded_as(frame)
    assert (episode.status, episode.reward, episode.success) == ("failed", None, None)
    assert re.search(cause, episode.error or ""), episode.error


@pytest.mark.parametrize(
    ("said", "success"), [(None, None), (True, True), (False, False), (1, True)]
)
def test_a_grade_is_kept_as_the_grader_says(said: Any, success: bool | None) -> None:
    episode = graded_as({"score": 0.25, "info": {} if said is None else {"success": said}})
    assert (episode.status, episode.reward, episode.success) == ("completed", 0.25, success)
    assert graded_as(0.0).reward == 0.0, "a grade of 0 that was given is one"


def test_an_answer_without_a_token_is_a_failed_episode() -> None:
    transport = ScriptedTransport(lambda m: {"action": "click", "x": 1, "y": 1})
    runtime = LocalRuntime(build)
    turns = (Turn((1, 2), ()),)
    episode = asyncio.run(
        play(CLICK, CONFIG, transport, runtime=runtime, id="e", group="g", turns=lambda: turns)
    )
    assert (episode.status, episode.error) == ("failed", "turn 0: the server's answer has no token")
