"""The agent through HUD's own loop, on the lab's env, with a model that says what it is told."""

import asyncio
import base64
import io
import json
import logging
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hud.agents.types import AgentStep, ToolStep
from hud.capabilities import Capability
from hud.environment import Environment
from hud.eval import LocalRuntime, Run, Task
from hud.eval.run import rollout
from hud.settings import settings
from openai import AsyncOpenAI
from PIL import Image

from cua_lab.computer.config import ToolConfig
from cua_lab.desktop.apps import Todo
from cua_lab.desktop.rfb import RFBServer
from cua_lab.envs.lab.env import build
from cua_lab.play.agent import LabAgent, LabAgentConfig, forget_hud_account

CLICK = {"action": "click", "x": 3, "y": 3}
LOOK = {"action": "screenshot"}
FINISH = {"action": "finish"}


class Model(httpx.AsyncBaseTransport):
    """Answers turn after turn with the calls it was given, and remembers what it was asked."""

    def __init__(self, *turns: list[Any] | str, finish_reason: str = "tool_calls") -> None:
        self.turns = turns
        self.finish_reason = finish_reason
        self.requests: list[dict[str, Any]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(await request.aread())
        turn = self.turns[len(self.requests)]
        self.requests.append(body)
        calls = [] if isinstance(turn, str) else turn
        message = {
            "role": "assistant",
            "content": turn if isinstance(turn, str) else None,
            "tool_calls": [_call(i, arguments) for i, arguments in enumerate(calls)] or None,
        }
        choice = {"index": 0, "finish_reason": self.finish_reason, "message": message}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
        return httpx.Response(200, json={**answer, "choices": [choice]}, request=request)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.requests[-1]["messages"]


def _call(index: int, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": "computer", "arguments": text}
    return {"id": f"call_{index}", "type": "function", "function": function}


def agent_for(model: Model, *, tool: dict[str, Any] | None = None, **config: Any) -> LabAgent:
    client = AsyncOpenAI(
        api_key="none",
        base_url="http://engine/v1",
        http_client=httpx.AsyncClient(transport=model),
        max_retries=0,
    )
    settings = ToolConfig(**{"pace_ms": 0, "screen_timeout_s": 1.0} | (tool or {}))
    return LabAgent(LabAgentConfig(**{"model_client": client, "tool": settings} | config))


def play(model: Model, *, env=build, task: Task | None = None, **config: Any) -> Run:
    task = task or Task(env="lab", id="targets-click", args={"turns": 5})
    agent = agent_for(model, **config)

    async def limited() -> Run:
        async with asyncio.timeout(300):
            return await rollout(task, agent, runtime=LocalRuntime(env))

    return asyncio.run(limited())


def tool_results(run: Run) -> list[Any]:
    return [step.result for step in run.trace.steps if isinstance(step, ToolStep)]


# ─── what the model sees ──────────────────────────────────────────────────


def test_the_first_message_holds_the_task_and_the_screen() -> None:
    """HUD drops images of task prompts; without one a task of a single turn is played blind."""
    model = Model([FINISH])
    run = play(model)
    system, user = model.messages
    assert "Turns are scarce, keystrokes are not" in system["content"]
    assert [part["type"] for part in user["content"]] == ["text", "image_url"]
    url = user["content"][1]["image_url"]["url"]
    png = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    assert Image.open(io.BytesIO(png)).size == (128, 128)
    shown = [step for step in run.trace.steps if step.source == "user"][-1].messages[0].content
    assert base64.b64decode(shown.data) == png


def test_the_first_screenshot_can_be_switched_off() -> None:
    model = Model([FINISH])
    play(model, first_screenshot=False)
    assert [part["type"] for part in model.messages[-1]["content"]] == ["text"]


def test_the_screen_is_the_only_tool_in_the_size_and_space_of_the_configuration() -> None:
    model = Model([FINISH])
    play(model, tool={"coordinate_space": "0-1000", "actions": ("click", "finish")})
    (tool,) = model.requests[0]["tools"]
    assert tool["function"]["name"] == "computer"
    assert tool["function"]["parameters"]["properties"]["x"]["maximum"] == 1000
    assert tool["function"]["parameters"]["properties"]["action"]["enum"] == ["click", "finish"]


def test_each_action_is_answered_with_the_screen_after_it() -> None:
    model = Model([CLICK], [FINISH])
    play(model)
    assert [message["role"] for message in model.messages] == [
        "system", "user", "assistant", "tool", "user",
    ]  # fmt: skip
    assert model.messages[-1]["content"][1]["type"] == "image_url"
    assert model.messages[-1] != model.messages[1]  # the miss is marked on the screen


# ─── how an episode ends ──────────────────────────────────────────────────


def test_finish_alone_in_its_turn_ends_the_episode_and_carries_the_answer() -> None:
    model = Model([LOOK], [{"action": "finish", "text": "42"}], [LOOK])
    run = play(model)
    assert len(model.requests) == 2
    assert (run.trace.status, run.trace.stop_reason, run.trace.content) == (
        "completed",
        "done",
        "42",
    )
    assert run.reward == 0.0
    assert not run.grade.is_error


def test_finish_beside_another_call_is_an_error_and_the_episode_goes_on() -> None:
    """The call before it is carried out; its result must reach the model."""
    model = Model([CLICK, FINISH], [FINISH])
    run = play(model)
    click, finish = tool_results(run)
    assert not click.isError
    assert finish.isError
    assert len(model.requests) == 2


def test_a_finish_with_unknown_arguments_does_not_end_the_episode() -> None:
    model = Model([{"action": "finish", "x": 1}], [FINISH])
    run = play(model)
    assert tool_results(run)[0].isError
    assert len(model.requests) == 2


def test_a_bad_action_never_ends_an_episode() -> None:
    bad = [{"action": "jump"}, {}, {"action": "click", "x": 500, "y": 1}, {"action": "press"}]
    model = Model(*([call] for call in bad), [FINISH])
    run = play(model)
    assert [result.isError for result in tool_results(run)] == [True] * 4
    assert run.trace.status == "completed"


def test_the_env_says_how_many_turns_an_episode_has() -> None:
    model = Model(*[[LOOK]] * 9)
    run = play(model, task=Task(env="lab", id="targets-click", args={"turns": 3}))
    assert len(model.requests) == 3
    assert run.trace.stop_reason == "max_steps"
    assert not run.grade.is_error


def test_the_smaller_of_the_two_turn_limits_counts() -> None:
    model = Model(*[[LOOK]] * 9)
    play(model, max_steps=2)
    assert len(model.requests) == 2


def test_words_without_a_call_end_the_episode() -> None:
    run = play(Model("I give up."))
    assert run.trace.content == "I give up."
    assert run.trace.status == "completed"


def test_a_truncated_turn_ends_the_episode_where_the_recipe_says_so() -> None:
    """A call cut off by the token limit (hud-python#480) is a prefix of what was meant."""
    model = Model([LOOK], [FINISH], finish_reason="length")
    assert play(model, stop_on={"length"}).trace.stop_reason == "length"
    assert len(model.requests) == 1


@pytest.mark.parametrize(("stop", "requests"), [({"malformed_tool_call"}, 1), (set(), 2)])
def test_a_call_that_is_no_json_ends_the_episode_or_is_answered(stop, requests) -> None:
    model = Model(['{"action": "cli'], [FINISH])
    run = play(model, stop_on=stop)
    assert len(model.requests) == requests
    assert run.trace.status == "completed"


# ─── screens that fail ────────────────────────────────────────────────────


def env_with(start) -> Any:
    """An env whose screen is whatever `start(env)` (an async context manager) brings up."""

    def build_env(task: Task) -> Environment:
        env = Environment("lab")
        stack: list[Any] = []

        @env.initialize
        async def up() -> None:
            stack.append(start())
            env.add_capability(await stack[0].__aenter__())

        @env.shutdown
        async def down() -> None:
            await stack[0].__aexit__(None, None, None)

        @env.template(id="targets-click")
        async def task_(turns: int = 1):
            yield "go"
            yield 0.5

        return env

    return build_env


@asynccontextmanager
async def silent_screen():
    """Accepts and says nothing."""
    writers = []

    async def accept(reader, writer) -> None:
        writers.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield Capability.rfb(name="screen", url=f"rfb://127.0.0.1:{port}")
    for writer in writers:
        writer.close()
    server.close()


def test_a_screen_that_never_answers_fails_the_episode_in_bounded_time() -> None:
    """HUD has no time limit of its own on connecting or on screenshots."""
    run = play(Model([LOOK]), env=env_with(silent_screen), tool={"screen_timeout_s": 0.2})
    assert run.trace.status == "error"
    assert "DeadScreen: no screen at" in (run.trace.error or "")


def test_an_env_without_a_screen_fails_the_episode() -> None:
    @asynccontextmanager
    async def shell_only():
        yield Capability.cdp(url="ws://127.0.0.1:1")

    run = play(Model([LOOK]), env=env_with(shell_only))
    assert run.trace.status == "error"
    assert "no rfb/3.8 capability" in (run.trace.error or "")


def test_a_screen_that_dies_on_the_way_fails_the_episode() -> None:
    """HUD turns other exceptions of a tool into results for the model: a broken desktop would look
    like a bad policy."""
    servers = []

    @asynccontextmanager
    async def screen():
        async with RFBServer(Todo()) as server:
            servers.append(server)
            yield Capability.rfb(name="screen", url=server.url)

    class Killer(Model):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if len(self.requests) == 1:
                await servers[0].close()
            return await super().handle_async_request(request)

    model = Killer([LOOK], [CLICK], [CLICK], [CLICK])
    run = play(model, env=env_with(screen), tool={"screen_timeout_s": 0.3})
    assert run.trace.status == "error"
    assert "DeadScreen" in (run.trace.error or "")
    assert len(model.requests) == 2


# ─── HUD's surroundings ───────────────────────────────────────────────────


def test_a_stray_hud_key_is_not_used_unless_asked_for(monkeypatch) -> None:
    """One stray key made an offline episode take 185 s."""
    monkeypatch.setattr(settings, "api_key", "stray")
    monkeypatch.setattr(settings, "telemetry_enabled", False)
    agent_for(Model(), use_hud_account=True)
    assert settings.api_key == "stray"
    agent_for(Model())
    assert settings.api_key is None
    assert settings.span_dir is None  # with telemetry off HUD writes screenshots to ~/.hud/spans


def test_steps_are_exported_again_once_somebody_listens(monkeypatch, tmp_path) -> None:
    forget_hud_account()
    monkeypatch.setattr(settings, "telemetry_local_dir", str(tmp_path))
    play(Model([FINISH]))
    assert list(tmp_path.glob("*.jsonl"))


def test_an_episode_leaves_no_tracebacks_of_cancelled_streams(caplog) -> None:
    """On Python 3.11 HUD's closing tunnels print one for each connection."""
    caplog.set_level(logging.ERROR, logger="asyncio")
    play(Model([CLICK], [FINISH]))
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_one_agent_plays_many_episodes_at_a_time() -> None:
    model = Model(*[[FINISH]] * 8)
    agent = agent_for(model)
    tasks = [Task(env="lab", id="targets-click", args={"seed": seed}) for seed in range(8)]

    async def all_of_them() -> list[Run]:
        runtime = LocalRuntime(build)
        return await asyncio.gather(*(rollout(task, agent, runtime=runtime) for task in tasks))

    runs = asyncio.run(all_of_them())
    assert [run.grade.info["state"]["seed"] for run in runs] == list(range(8))
    assert all(isinstance(run.trace.steps[3], AgentStep) for run in runs)
