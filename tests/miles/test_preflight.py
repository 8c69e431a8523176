"""Preflight: what it sees, how to fix it, and everything in one go."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cua_lab.checks import Check
from cua_lab.cli import app, commands  # noqa: F401  (registers the commands)
from cua_lab.miles import checks_software as module
from cua_lab.miles.preflight import preflight
from cua_lab.miles.recipe import MilesRecipe, load_miles_recipe
from cua_lab.tasks import mint, write_rows

ARGS = {"turns": 24, "width": 1280, "height": 1200}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which everything is in place, and tools that say so."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qwen3_vl"}')
    (model / "preprocessor_config.json").write_text("{}")
    (model / "chat_template.jinja").write_text("... <tool_call>\n{...}\n</tool_call> ...")
    (model / "model.safetensors").write_bytes(b"0" * 1000)
    write_rows(
        mint("cua_lab.envs.lab", slugs=["2048-score"], args=ARGS, seeds=range(160)),
        tmp_path / "rows.jsonl",
    )
    key = tmp_path / "key"
    key.write_text("dtn_x")
    key.chmod(0o600)
    (tmp_path / "miles").mkdir()
    (tmp_path / "miles" / "train.py").write_text("")
    (tmp_path / "miles" / "requirements.txt").write_text("torch\ntransformers==5.12.1  # pin\n")
    versions = {"hud": "0.6.21", "daytona": "1", "asyncssh": "2", "sglang": "0.5.23",
                "transformers": "5.12.1", "wandb": "0.20"}  # fmt: skip
    monkeypatch.setattr(module, "installed_version", versions.get)
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}")
    listing = subprocess.CompletedProcess((), 0, "GPU\n" * 8)
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: listing)
    usage = type("Usage", (), {"free": 2**42})
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    return tmp_path


def recipe_at(node: Path, *overrides: str) -> MilesRecipe:
    return load_miles_recipe(
        overrides=[
            f"model.path={node}/model",
            f"tasks.data={node}/rows.jsonl",
            f"runtime.key_file={node}/key",
            f"cluster.miles={node}/miles",
            f"cluster.output={node}/out",
            *overrides,
        ]
    )


def look(node: Path, name: str, *overrides: str) -> Check:
    """The check of this name with the worst outcome."""
    found = [check for check in preflight(recipe_at(node, *overrides)) if check.name == name]
    return min(found, key=lambda check: ["fail", "warn", "ok"].index(check.status))


def test_a_prepared_node_is_ready(node: Path) -> None:
    checks = preflight(recipe_at(node))
    assert [c.name for c in checks if c.status == "fail"] == []
    assert [c.name for c in checks if c.status == "warn"] == ["context"]  # 24 answers of 512


def test_a_bare_machine_lists_all_that_is_missing_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "installed_version", lambda name: None)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    recipe = load_miles_recipe(
        overrides=[f"runtime.key_file={tmp_path}/none", f"cluster.miles={tmp_path}"]
    )
    failed = [check for check in preflight(recipe) if check.status == "fail"]
    names = "hud daytona asyncssh sglang miles ray transformers GPUs credentials rows model disk"
    assert [check.name for check in failed] == names.split()
    assert all(check.saw and check.fix for check in failed)


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [
        ("0.5.12", "fail", "no token ids"),
        ("0.5.14.post1", "ok", "meta_info triples"),
        ("0.5.17", "ok", "choice.token_ids"),
        ("0.5.23", "ok", "response_token_ids"),
    ],
)
def test_the_dialect_follows_from_sglangs_version(
    node: Path, monkeypatch: pytest.MonkeyPatch, version: str, status: str, words: str
) -> None:
    monkeypatch.setattr(module, "installed_version", {"sglang": version}.get)
    check = look(node, "sglang")
    assert check.status == status
    assert words in check.saw


def change_row(node: Path, **task: Any) -> None:
    lines = (node / "rows.jsonl").read_text().splitlines()
    row = json.loads(lines[1])
    row["metadata"]["hud_task"].update(task)
    (node / "rows.jsonl").write_text("\n".join([lines[0], json.dumps(row), *lines[2:]]))


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"id": "2049"}, "row 2: no template '2049'"),
        ({"env": "web"}, "row 2: env 'web'"),
        ({"args": {"sed": 1}}, "did you mean 'seed'"),
        ({"args": {"seed": "one"}}, "row 2: argument 'seed'"),
    ],
)
def test_each_row_must_be_one_that_the_package_could_have_minted(
    node: Path, task: dict[str, Any], words: str
) -> None:
    change_row(node, **task)
    check = look(node, "rows")
    assert check.status == "fail"
    assert words in check.saw
    assert "cua-lab data mint" in check.fix


def test_rows_that_end_early_or_have_another_screen_are_seen(node: Path) -> None:
    """The env's own number of turns wins, so 24 in the recipe would do nothing."""
    change_row(node, args={"seed": 1, "turns": 4, "width": 640, "height": 600})
    check = look(node, "rows")
    assert check.status == "warn"
    assert "end after 4 turns" in check.saw
    assert "640x600" in check.saw


def test_a_key_that_others_can_read_or_that_is_missing(node: Path) -> None:
    (node / "key").chmod(0o644)
    assert look(node, "credentials").fix == f"chmod 600 {node}/key"
    (node / "key").write_text("\n")
    assert "is empty" in look(node, "credentials").saw
    (node / "key").unlink()
    assert look(node, "credentials").status == "fail"
    assert look(node, "credentials", "runtime.kind=local").status == "ok"


def test_a_template_that_the_parser_cannot_read(node: Path) -> None:
    """Tool calls stay text, and every episode ends at turn one."""
    (node / "model" / "chat_template.jinja").write_text("<|python_tag|>")
    assert look(node, "tool calls").status == "fail"
    assert look(node, "tool calls", "model.tool_call_parser=nova").status == "warn"


def test_the_tool_must_speak_the_models_coordinates(node: Path) -> None:
    """Qwen3-VL#1485: clicks land near the upper left corner."""
    check = look(node, "coordinates", 'tool.coordinate_space="pixels"')
    assert check.status == "fail"
    assert 'tool.coordinate_space="0-1000"' in check.fix


@pytest.mark.parametrize(
    ("name", "override", "status"),
    [
        ("context", "agent.max_turns=48", "fail"),
        ("context", "agent.max_tokens=160", "ok"),
        ("timeout", "cluster.timeout_minutes=10", "fail"),
        ("timeout", "tool.screenshot_width=256", "ok"),
        ("batch", "train.prompts=3", "ok"),
        ("batch", "train.samples=7", "fail"),
        ("batch", "agent.after_rewrite=split", "warn"),
        ("GPUs", "cluster.gpus=16", "fail"),
        ("our trainer", "train.clip_high=0.2", "warn"),
        ("env package", "tasks.package=cua_lab.nowhere", "fail"),
        ("env package", "tasks.package=tcp://127.0.0.1:9", "fail"),
        ("screens", "tool.quiet_ms=0", "ok"),
        ("miles", "cluster.miles=/nowhere", "fail"),
        ("model", "model.path=/nowhere", "fail"),
    ],
)
def test_numbers_that_do_not_go_together(node: Path, name: str, override: str, status: str) -> None:
    assert look(node, name, override).status == status


def test_costs_follow_the_models_family_and_tokenizer(node: Path, checkpoint: Path) -> None:
    """Qwen2.5-VL cuts the same screenshot into 306 tokens instead of 240."""
    assert "24 frames x 240 tokens" in look(node, "context").saw
    (node / "model" / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    before = look(node, "context").saw
    assert "24 frames x 306 tokens" in before
    (node / "model" / "tokenizer.json").write_text((checkpoint / "tokenizer.json").read_text())
    assert look(node, "context").saw != before


def test_a_disk_that_the_checkpoints_would_fill(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 2**30})
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    check = look(node, "disk")
    assert check.status == "fail"
    assert "8 checkpoints" in check.saw


def test_the_command_is_printed_on_a_prepared_node(node: Path) -> None:
    options = [
        *("--model", f"{node}/model", "--data", f"{node}/rows.jsonl"),
        *("--output", f"{node}/out", "--set", f"runtime.key_file={node}/key"),
        *("--miles", f"{node}/miles", "--dry-run"),
    ]
    result = CliRunner().invoke(app, ["miles", *options])
    assert result.exit_code == 0, result.output
    assert f"-- python3 {node}/miles/train.py" in result.output
    assert f"--custom-config-path {node}/out/miles-recipe.yaml" in result.output
    assert not (node / "out").exists(), "a dry run writes nothing"


def test_costs_are_printed_without_a_model(node: Path) -> None:
    result = CliRunner().invoke(app, ["miles", "--costs"])
    assert "512x480 px, 240 tokens" in result.output
    assert result.exit_code == 0


BARE = """
from hud.environment import Environment

env = Environment("bare")


@env.template(id="play")
async def play(level: int = 1):
    yield {"prompt": "Play."}
    yield {"score": 1.0}
"""


@pytest.fixture
def foreign(node: Path) -> str:
    """A package of somebody's own, whose template has neither seed nor turns."""
    (node / "env").mkdir()
    (node / "env" / "env.py").write_text(BARE)
    return f"tasks.package={node}/env"


def test_the_hint_for_rows_works_on_any_env(node: Path, foreign: str) -> None:
    overrides = (foreign, "runtime.kind=local", f"tasks.data={node}/own.jsonl")
    hint = look(node, "rows", *overrides).fix
    assert hint == f"cua-lab data mint {node}/own.jsonl --package {node}/env --slug play"
    result = CliRunner().invoke(app, hint.removeprefix("cua-lab ").split())
    assert result.exit_code == 0, result.output
    assert look(node, "rows", *overrides).status == "warn"  # one row, and a step takes four
    assert look(node, "env package", *overrides).status == "ok"


def test_a_real_browsers_screen_must_settle(node: Path, foreign: str) -> None:
    """20 of 36 frames of the public env came before the move without, 6 of 48 at 60 ms."""
    assert look(node, "screens", foreign, "tool.quiet_ms=0").status == "fail"
    assert look(node, "screens", foreign, "tool.react_ms=60").status == "warn"
    assert look(node, "screens", foreign).status == "ok"


def test_miles_pin_of_transformers_is_kept(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed_version", {"transformers": "5.24.0"}.get)
    check = look(node, "transformers")
    assert (check.status, check.saw) == ("fail", "5.24.0, Miles pins 5.12.1")
    assert "--group plugin" in check.fix


def test_no_key_of_wandb_is_passed_on(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    monkeypatch.setattr(module, "_netrc_has", lambda host: False)
    check = look(node, "wandb", "cluster.wandb=screens")
    assert check.status == "fail"
    assert "is not passed on" in check.saw
    assert look(node, "wandb", "cluster.wandb=screens", "cluster.wandb_mode=offline").status == "ok"
