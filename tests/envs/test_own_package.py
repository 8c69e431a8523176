"""Somebody's own HUD env as `tasks.package`: run, eval, mint and the runtimes, on `kiosk`."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from cua_lab.cli import app, commands  # noqa: F401  (registers the commands)
from cua_lab.computer.config import ToolConfig
from cua_lab.computer.settling import QuietFramebuffer
from cua_lab.demonstrators.trajectories import Trajectories
from cua_lab.env_package import env_package
from cua_lab.errors import LabError
from cua_lab.pictures import data_url, png_bytes, read_rgb
from cua_lab.play.agent import LabAgentConfig
from cua_lab.play.episode import Episode, play
from cua_lab.play.runtimes import make_runtime
from cua_lab.play.scripted import ScriptedTransport
from cua_lab.recipes import load_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
from cua_lab.run.stage_context import build_stage, demonstrator_of, new_policy
from cua_lab.run.task_evaluation import evaluation_plans
from cua_lab.tasks import read_rows, to_hud_task

KIOSK = Path(__file__).parent / "kiosk"
KEY = {"action": "press", "keys": ["right"]}
SETTLE = QuietFramebuffer(quiet_ms=300, react_ms=300, at_most_ms=5000)
"""Longer than any pause between two frames of the move, also where the machine is busy."""


def free_port(above: int = 0) -> int:
    """Below those that the system gives away, so that nobody else gets it meanwhile."""
    for number in range(max(above, 15000 + os.getpid() % 5000 * 3) + 1, 32000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", number)):
            return number
    raise AssertionError("no port is free")


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Fixed for the env, and another one for each test."""
    number = free_port()
    monkeypatch.setenv("KIOSK_PORT", str(number))
    return number


@pytest.fixture
def address(port: int) -> Iterator[str]:
    """The package as a server that runs already."""
    control = free_port(above=port)
    command = [sys.executable, "-m", "hud.environment.server", str(KIOSK), "--port", str(control)]
    root = str(Path(__file__).parents[2])
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            subprocess.Popen(
                command, env={**os.environ, "PYTHONPATH": root}, stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(server.terminate)
        assert server.stdout is not None
        assert server.stdout.readline().strip() == f"HUD_SERVE_PORT={control}"
        yield f"tcp://127.0.0.1:{control}"


def played(package: str, kind: Any = "local", *, times: int = 1, **tool: Any) -> list[Episode]:
    """One key, pressed by a script; then nothing is left to do."""
    rows = [{"env": "kiosk", "id": "step-right", "slug": "step-right", "args": {}}]
    message = [{"role": "user", "content": "step-right"}]
    row = {"prompt": message, "label": "step-right", "metadata": {"hud_task": rows[0]}}
    runtime = make_runtime(package, kind)

    async def all_of_them() -> list[Episode]:
        config = LabAgentConfig(tool=ToolConfig(pace_ms=1, settle=SETTLE, **tool), max_steps=1)
        return [
            await play(
                to_hud_task(row),
                config,
                ScriptedTransport(lambda messages: KEY),
                runtime=runtime,
                id=f"e{i}",
                group="g",
            )
            for i in range(times)
        ]

    return asyncio.run(all_of_them())


def test_a_page_without_focus_needs_a_click_before_the_first_key() -> None:
    """And a fixed port can be taken again by the next episode."""
    (deaf,) = played(str(KIOSK))
    assert (deaf.status, deaf.reward, deaf.error) == ("completed", 0.0, None)
    heard = played(str(KIOSK), times=2, focus_click=True)
    assert [episode.reward for episode in heard] == [1.0, 1.0]


def test_the_policy_sees_the_end_of_an_animated_move() -> None:
    (episode,) = played(str(KIOSK), focus_click=True)
    before, after = (np.asarray(read_rgb(png)) for png in episode.screenshots)
    where = [int(np.flatnonzero((frame[60] != 255).any(-1))[0]) for frame in (before, after)]
    assert where == [8, pytest.approx(8 + (128 - 40) / 3, abs=1)]


def test_in_a_process_of_its_own() -> None:
    (episode,) = played(str(KIOSK), "subprocess", focus_click=True)
    assert (episode.reward, episode.error) == (1.0, None)


def test_behind_an_address(address: str, tmp_path: Path) -> None:
    """Its templates and their arguments come over the wire; rows are checked by them."""
    package = env_package(address)
    assert (package.name, list(package.templates)) == ("kiosk", ["step-right", "reach"])
    assert [task.slug for task in package.tasks] == ["step-right"], "`reach` needs its cell"
    rows = tmp_path / "rows.jsonl"
    mint = ["data", "mint", str(rows), "--package", address, "--args", '{"cells": 2}']
    result = CliRunner().invoke(app, mint)
    assert result.exit_code == 0, result.output
    assert read_rows(rows)[0]["metadata"]["hud_task"]["args"] == {"cells": 2}
    with pytest.raises(LabError, match="has no argument 'seeds'"):
        evaluation_plans(package, None, args={"seeds": 1}, episodes=1, seed=0)
    with pytest.raises(LabError, match=r"one screen; got run\.concurrency 4"):
        package.check_concurrency(4, "run.concurrency")
    (episode,) = played(address, focus_click=True)
    assert (episode.reward, episode.error) == (1.0, None)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("tcp://127.0.0.1", "is no address"),
        ("docker://", "names no image"),
    ],
)
def test_what_is_no_address_is_said(source: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        env_package(source)


def test_a_served_package_says_itself_where_it_runs() -> None:
    with pytest.raises(LabError, match="runtime is daytona; expected local"):
        make_runtime("tcp://127.0.0.1:9", "daytona")


def test_an_evaluation_plays_an_env_without_seeds() -> None:
    plans = evaluation_plans(env_package(KIOSK), None, args={}, episodes=2, seed=0)
    assert [plan.task.args for plan in plans] == [{}, {}]
    assert len({plan.seed for plan in plans}) == 2, "sampling differs all the same"


# ─── recipes ─────────────────────────────────────────────────────────


def recipe(tmp_path: Path, **sft: Any) -> Any:
    text = f"""
name: own
run: {{concurrency: 1, threads: 1}}
stages:
  - name: kiosk
    tasks: {{package: {KIOSK}, template: step-right}}
    policy: {{hidden: 32, layers: 2, heads: 2, vision_hidden: 32, vision_depth: 1}}
    tool: {{actions: [press], quiet_ms: 40, focus_click: true}}
    agent: {{max_turns: 1, max_tokens: 24}}
    sft: {json.dumps({"steps": 2, "batch": 2, "demonstrations": 2} | sft)}
    grpo: {{steps: 1, groups: 1, group_size: 2}}
    eval: {{episodes: 1, ablations: [blank]}}
"""
    file = tmp_path / "own.yaml"
    file.write_text(text)
    return load_recipe(str(file))


@pytest.fixture
def trajectories(tmp_path: Path) -> Path:
    """One with a data URL, one with a file, arguments as text as OpenAI writes them."""
    from PIL import Image

    png = png_bytes(Image.new("RGB", (128, 128), "white"))
    (tmp_path / "screen.png").write_bytes(png)
    images = [
        {"type": "image_url", "image_url": {"url": data_url(png)}},
        {"type": "image", "image": "screen.png"},
    ]
    lines = []
    for number, image in enumerate(images):
        call = {"name": "computer", "arguments": json.dumps(KEY)}
        tool_call = {"id": f"call_{number}", "type": "function", "function": call}
        messages = [
            {"role": "user", "content": [{"type": "text", "text": "Step 1 to the right."}, image]},
            {"role": "assistant", "content": None, "tool_calls": [tool_call]},
        ]
        lines.append(json.dumps({"messages": messages}))
    path = tmp_path / "trajectories.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_a_recipe_warms_up_on_trajectories_and_trains(tmp_path: Path, trajectories: Path) -> None:
    made = recipe(tmp_path, trajectories=str(trajectories))
    asyncio.run(run_recipe(made, RunFolder.create(tmp_path / "run", resume=False)))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    phases = [json.loads(line).get("phase") for line in lines]
    assert "grpo" in phases


def test_a_recipe_without_anybody_to_learn_from_says_what_is_missing(tmp_path: Path) -> None:
    context = build_stage(one := recipe(tmp_path, steps=0), one.stages[0])
    assert demonstrator_of(context) is None
    with pytest.raises(LabError, match=r"policy\.checkpoint, or sft\.trajectories"):
        new_policy(context, None)
    context = build_stage(one := recipe(tmp_path), one.stages[0])
    with pytest.raises(LabError, match=r"brings no players\.py"):
        demonstrator_of(context)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is no conversation"),
        ('{"turns": []}', "no 'messages'"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "nobody answers"),
        (
            '{"messages": [{"role": "user", "content": [{"type": "image", "image": "no.png"}]}]}',
            "no screenshot",
        ),
        (
            '{"messages": [{"role": "user", "content": [{"type": "image_url",'
            ' "image_url": {"url": "https://x/y.png"}}]}]}',
            "give a data URL",
        ),
    ],
)
def test_a_line_that_cannot_be_learnt_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "t.jsonl").write_text(line)
    with pytest.raises(LabError, match=message):
        Trajectories.read(tmp_path / "t.jsonl", ())
