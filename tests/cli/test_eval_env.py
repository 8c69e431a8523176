"""`cua-lab eval --env`: short names, splits, and any server on a real browser."""

import base64
import io
import json
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from cua_lab.cli import app, commands  # noqa: F401  (registers the commands)
from cua_lab.computer.config import ToolConfig
from cua_lab.computer.settling import NoSettle, QuietFramebuffer
from cua_lab.env_package import env_package
from cua_lab.envs.miniwob.tasks import HELD_OUT, TRAINING
from cua_lab.errors import LabError
from cua_lab.run import task_evaluation as evaluate
from cua_lab.run.task_evaluation import concurrency_for, evaluation_plans, tool_config_for
from tests.conftest import needs_chromium

MINIWOB = "cua_lab.envs.miniwob"


def played(split: str | None = None, names: list[str] | None = None) -> list[str]:
    """The pages of the plans, one entry a page."""
    plans = evaluation_plans(env_package(MINIWOB), names, args={}, episodes=2, seed=0, split=split)
    assert len({plan.id for plan in plans}) == len(plans)
    return list(dict.fromkeys(plan.task.args["page"] for plan in plans))


def test_an_env_goes_by_its_short_name_and_an_unknown_one_is_told_which_there_are() -> None:
    assert env_package("miniwob").source == MINIWOB
    assert env_package("lab").name == env_package("cua_lab.envs.lab").name == "lab"
    for name in ("minwob", "cua_lab.envs.none", "cua_lab.policy", "../envs", ""):
        with pytest.raises(LabError, match="no HUD env package"):
            env_package(name)


def test_without_a_word_the_training_pages_are_played_and_a_split_says_otherwise() -> None:
    pytest.importorskip("miniwob")
    assert played() == played("training") == list(TRAINING)
    assert played("held-out") == list(HELD_OUT)
    assert len(played("all")) > 120
    assert played(names=["click-tab", "click-pie"]) == ["click-tab", "click-pie"]
    with pytest.raises(LabError, match="unknown slug 'click-tab'"):
        played("held-out", ["click-tab"])
    with pytest.raises(LabError, match="training, held-out or all"):
        played("test")
    with pytest.raises(LabError, match="one set of tasks"):
        evaluation_plans(env_package("cua_lab.envs.lab"), None, args={}, seed=0, split="held-out")


def test_several_tasks_get_fewer_start_states_each_than_one_alone() -> None:
    alone = evaluation_plans(env_package("cua_lab.envs.lab"), ["todo-create"], args={}, seed=0)
    several = evaluation_plans(
        env_package("cua_lab.envs.lab"), ["todo-create", "todo-complete"], args={}, seed=0
    )
    assert (len(alone), len(several)) == (64, 16)


def test_browsers_are_asked_for_as_many_episodes_at_a_time_as_they_can_play() -> None:
    assert (
        concurrency_for(env_package("cua_lab.envs.lab"), None),
        concurrency_for(env_package(MINIWOB), None),
    ) == (32, 8)
    assert concurrency_for(env_package(MINIWOB), 3) == 3
    with pytest.raises(LabError, match=r"at most 8 .* got --concurrency 9"):
        concurrency_for(env_package(MINIWOB), 9)


def test_on_a_real_screen_the_tool_waits_until_nothing_moves() -> None:
    """A policy on stale frames is measured on its luck."""
    asked = ToolConfig(actions=("click",), coordinate_space="0-1000", pace_ms=0)
    real = tool_config_for(env_package(MINIWOB), asked)
    assert (real.settle, real.pace_ms, real.actions) == (QuietFramebuffer(40), 20, ("click",))
    assert tool_config_for(env_package("cua_lab.envs.lab"), asked).settle == NoSettle()


def clicks_what_is_grey(request: httpx.Request) -> httpx.Response:
    """A server that looks: the one button of click-test is the only grey thing on its page;
    where nothing is grey it clicks into a corner."""
    if request.url.path.endswith("/models"):
        return httpx.Response(200, json={"data": [{"id": "m"}]})
    body = json.loads(request.content)
    assert isinstance(body["seed"], int)
    url = body["messages"][-1]["content"][-1]["image_url"]["url"]
    with Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))) as image:
        shown = np.asarray(image.convert("RGB"))
    grey = np.argwhere((shown == (239, 239, 239)).all(-1))
    y, x = grey.mean(0) / shown.shape[:2] * 1000 if len(grey) else (1000, 1000)
    arguments = json.dumps({"action": "click", "x": round(x), "y": round(y)})
    call = {"id": "c", "type": "function", "function": {"name": "computer", "arguments": arguments}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    found = {"id": "1", "model": "m", "created": 0, "object": "chat.completion"}
    return httpx.Response(200, json=found | {"choices": [choice]})


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_any_server_is_measured_on_a_real_browser_as_a_user_types_it(tmp_path, monkeypatch) -> None:
    needs_chromium()
    pytest.importorskip("miniwob", reason="MiniWoB++ is not installed: pip install -e '.[browser]'")
    transport = lambda: httpx.MockTransport(clicks_what_is_grey)  # noqa: E731
    monkeypatch.setattr(evaluate.httpx, "AsyncHTTPTransport", transport)
    typed = f"eval --env miniwob --base-url http://server/v1 --model m --out {tmp_path}"
    few = ["--task", "click-test", "--task", "focus-text", "--episodes", "1", "--args"]
    result = CliRunner().invoke(app, [*typed.split(), *few, '{"turns": 1}'], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = json.loads(Path(tmp_path, "eval.json").read_text())
    rates = {name: part["success"]["rate"] for name, part in found["by_task"].items()}
    assert rates == {"click-test": 1.0, "focus-text": 0.0}
    assert found["overall"]["failed"] == 0
    html = Path(tmp_path, "eval.html").read_text()
    assert html.count("data:image/png;base64,") == 2
    assert "50.0%" in html
    assert "nan" not in result.output + html.split("<h2>")[0]
    assert "50.0%" in result.output
