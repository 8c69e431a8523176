"""The Dockerfiles of the browser envs, executed step by step where there is no Docker engine."""

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from hud.eval import Runtime, Task

from cua_lab.env_package import dockerfile_of
from cua_lab.play.agent import LabAgentConfig
from cua_lab.play.episode import Episode, play
from cua_lab.play.scripted import ScriptedTransport
from tests.envs.namespaces import Image, debian

ROOT = Path(__file__).parents[2]
PORT = 8765
TASKS = {
    "cua_lab.envs.browser": Task(env="browser", id="2048-score", args={"seed": 1, "turns": 1}),
    "cua_lab.envs.miniwob": Task(
        env="miniwob", id="miniwob", args={"page": "click-test", "seed": 1, "turns": 1}
    ),
}
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("debootstrap") is None,
        reason="needs root and debootstrap, which downloads a Debian",
    ),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    kept = os.environ.get("CUA_LAB_TEST_DEBIAN")
    return Path(kept) if kept else debian(tmp_path_factory.mktemp("debian") / "base")


@pytest.mark.parametrize("package", TASKS)
def test_what_the_dockerfile_builds_serves_an_episode(package: str, base: Path, tmp_path) -> None:
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", str(base), str(root)], check=True)
    image = Image(root)
    image.build(dockerfile_of(package), ROOT)
    assert image.user != "root"
    server = subprocess.Popen(image.argv(image.command), start_new_session=True)
    try:
        episode = asyncio.run(_episode(TASKS[package]))
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=20)
    assert episode.status == "completed", episode.error
    assert episode.reward is not None
    assert episode.screenshots


async def _episode(task: Task) -> Episode:
    call = {"action": "press", "keys": ["left", "up"]}
    if task.id == "miniwob":
        call = {"action": "click", "x": 500, "y": 500}
    await _until_it_listens()
    return await play(
        task,
        LabAgentConfig(model="scripted", max_steps=1),
        ScriptedTransport(lambda messages: call),
        runtime=Runtime(f"tcp://127.0.0.1:{PORT}"),
        id="image",
        group="image",
        timeout_s=60,
    )


async def _until_it_listens() -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", PORT)
            except OSError:
                await asyncio.sleep(0.2)
            else:
                writer.close()
                return
