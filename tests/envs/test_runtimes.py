"""The env under every runtime that HUD has for one machine."""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from hud.eval import LocalRuntime, Runtime, Shared, SubprocessRuntime, Task
from hud.eval.run import rollout
from openai import AsyncOpenAI

import cua_lab.envs.lab
from cua_lab.computer.config import ToolConfig
from cua_lab.envs.lab.env import build
from cua_lab.play.agent import LabAgent, LabAgentConfig
from cua_lab.play.scripted import ScriptedTransport

PACKAGE = Path(cua_lab.envs.lab.__file__).parent
TASK = Task(env="lab", id="2048-score", args={"seed": 1, "turns": 2})
KEYS = {"action": "press", "keys": ["left", "down", "right", "up"] * 5}


@asynccontextmanager
async def served():
    """`python -m hud.environment.server`, as a container runs it."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hud.environment.server", str(PACKAGE), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        line = await server.stdout.readline()
        port = int(line.decode().removeprefix("HUD_SERVE_PORT="))
        yield Runtime(f"tcp://127.0.0.1:{port}")
    finally:
        server.terminate()
        await server.wait()


@asynccontextmanager
async def plain(runtime):
    yield runtime


RUNTIMES = {
    "a new env for each episode": lambda: plain(LocalRuntime(build)),
    "a source file": lambda: plain(LocalRuntime(PACKAGE / "env.py")),
    "a source directory": lambda: plain(LocalRuntime(PACKAGE)),
    "a child process": lambda: plain(SubprocessRuntime(PACKAGE / "env.py")),
    "one env shared in turns": lambda: Shared(LocalRuntime(build), width=1),
    "a running server": served,
}


@pytest.mark.parametrize("name", RUNTIMES)
def test_an_episode_is_the_same_under(name: str) -> None:
    async def scenario():
        transport = ScriptedTransport(lambda messages: KEYS)
        client = AsyncOpenAI(
            api_key="none",
            base_url="http://engine/v1",
            http_client=httpx.AsyncClient(transport=transport),
        )
        config = LabAgentConfig(model_client=client, tool=ToolConfig(pace_ms=0))
        episodes = 1 if name == "a child process" else 2  # each starts a Python: seconds
        async with asyncio.timeout(120), RUNTIMES[name]() as runtime:
            agent = LabAgent(config)
            return [await rollout(TASK, agent, runtime=runtime) for _ in range(episodes)]

    for run in asyncio.run(scenario()):
        assert run.trace.status == "completed", run.trace.error
        assert run.grade.info["state"]["score"] == 340
        assert run.reward == 0.34
