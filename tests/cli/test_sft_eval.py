"""From a file to a trained, measured policy, as a reader would type it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cua_lab.cli import app, commands  # noqa: F401  (registers the commands)
from cua_lab.errors import LabError

TINY = """
policy: {hidden: 32, layers: 2, vision_hidden: 32, grid_side: 6}
model: {device: cpu}
ask: {system: short, actions: [click]}
train: {steps: 3, batch: 4, lr: 5e-3}
"""


def cua_lab(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_draw_sft_and_eval_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    cua_lab("data", "draw", "drawn", "--count", "8", "--size", "96x96")
    checked = cua_lab("data", "check", "drawn/samples.jsonl", "--min-size", "96x96")
    assert "8 accepted, 0 rejected" in checked
    cua_lab("sft", "--data", "drawn/samples.jsonl", "--recipe", "tiny.yaml", "--set", "lora.r=2")
    cua_lab("eval", "drawn/samples.jsonl", "--model", "runs/tiny/model", "--out", "seen")
    found = json.loads(Path("seen/eval.json").read_text())
    assert found["overall"]["count"] == 8
    assert "<h2>By difficulty</h2>" in Path("seen/eval.html").read_text()
    env = ("--env", "cua_lab.envs.lab", "--task", "targets-click", "--episodes", "2")
    cua_lab(
        *("eval", *env, "--args", '{"width": 96, "height": 96}'),
        *("--model", "runs/tiny/model", "--out", "played"),
    )
    played = json.loads(Path("played/eval.json").read_text())
    assert len(played["episodes"]) == 2
    assert "data:image/png;base64," in Path("played/eval.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give one of the two"),
        (["a.jsonl", "--env", "cua_lab.envs.lab", "--model", "m"], "give one of the two"),
        (["a.jsonl"], "--model is missing: a checkpoint folder"),
        (["a.jsonl", "--model", "m", "--screens", "dark"], "own, shuffled, blank"),
        (["a.jsonl", "--model", "m", "--base-url", "http://x/v1"], "--policy-space"),
        (["a.jsonl", "--model", "nowhere"], "not a checkpoint"),
    ],
)
def test_a_mistake_is_one_line_that_helps(arguments: list[str], says: str) -> None:
    with pytest.raises(LabError, match=says):
        CliRunner().invoke(app, ["eval", *arguments], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--app", "paint"], "targets, todo"),
        (["--size", "big"], "such as 128x128"),
        (["--count", "0"], "at least 1"),
    ],
)
def test_drawing_says_what_it_can_draw(tmp_path: Path, arguments: list[str], says: str) -> None:
    with pytest.raises(LabError, match=says):
        CliRunner().invoke(app, ["data", "draw", str(tmp_path), *arguments], catch_exceptions=False)
