"""Whatever is typed, a command ends in its result or in one line: walked over every command."""

import errno
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from cua_lab import files
from cua_lab.cli import app, in_one_line
from tests.cli.support_cli import Ended, cua_lab

Run = Callable[..., Ended]

MISTAKES: dict[str, list[list[str]]] = {
    "audit verify": [["absent"], ["FOLDER"], ["FILE/under"]],
    "bench": [["nope"], ["stitch", "--rounds", "0"], ["stitch", "--rounds", "x"]],
    "plan": [
        ["--set", "x"],
        ["--recipe", "absent"],
        ["--desktops", "0"],
        ["--gpus", "x"],
        ["--run", "absent"],
    ],
    "gpu-check": [["--size", "nope"], ["--engine", "tgi"], ["--device", "tpu"], ["--steps", "0"]],
    "data check": [
        ["absent.jsonl"],
        ["FOLDER"],
        ["BINARY", "--out", "FILE/x"],
        ["FILE", "--min-size", "x"],
        ["FILE", "--space", "inches"],
        ["FILE", "--out", "FILE"],
        ["FILE", "--out", "FILE/under"],
        ["FILE", "--out", "/proc/nothing"],
        ["FILE", "--instruction-chars", "5"],
    ],
    "data convert": [
        ["nope", "FILE", "out.jsonl"],
        ["agentnet", "absent", "out.jsonl"],
        ["agentnet", "FOLDER", "out.jsonl"],
        ["agentnet", "BINARY", "out.jsonl"],
        ["agentnet", "BROKEN", "out.jsonl"],
        ["agentnet", "FILE", "FOLDER"],
        ["agentnet", "FILE", "FILE/under"],
        ["agentnet", "FILE", "/proc/nothing/out.jsonl"],
    ],
    "data draw": [
        ["out", "--count", "0"],
        ["out", "--size", "x"],
        ["out", "--size", "1x1"],
        ["out", "--levels", "nine"],
        ["out", "--levels", "99"],
        ["out", "--app", "paint"],
        ["FILE", "--count", "1"],
        ["FILE/under", "--count", "1"],
        ["/proc/nothing", "--count", "1"],
    ],
    "data mint": [
        ["nope"],
        ["out.jsonl", "--package", "no.such.package"],
        ["out.jsonl", "--package", "FOLDER"],
        ["out.jsonl", "--package", "FILE"],
        ["out.jsonl", "--args", "{"],
        ["out.jsonl", "--args", "[1]"],
        ["out.jsonl", "--args", '{"seed": NaN}'],
        ["out.jsonl", "--seeds", "5"],
        ["out.jsonl", "--seeds", "5:2"],
        ["out.jsonl", "--repeat", "0"],
        ["out.jsonl", "--slug", "nope"],
        ["FILE/out.jsonl"],
        ["/proc/nothing/out.jsonl"],
        ["/dev/full"],
    ],
    "data tasks": [["--package", "no.such.package"], ["--package", "FOLDER"]],
    "desktop": [
        ["nope"],
        ["todo", "--port", "70000"],
        ["todo", "--port", "-1"],
        ["todo", "--port", "x"],
        ["todo", "--port", "TAKEN"],
        ["todo", "--host", "example.com"],
        ["todo", "--host", "0.0.0.0"],
        ["todo", "--width", "1"],
        ["todo", "--width", "9999999"],
        ["todo", "--password-file", "absent"],
        ["todo", "--password-file", "FOLDER"],
        ["todo", "--level", "2"],
        ["targets", "--level", "99"],
        ["game2048", "--near-win", "7"],
    ],
    "doctor": [["--nope"]],
    "eval": [
        ["absent.jsonl"],
        ["absent.jsonl", "--model", "absent"],
        ["FILE", "--model", "FOLDER"],
        ["BINARY", "--model", "FOLDER"],
        ["--env", "no.such.env", "--model", "FOLDER"],
        ["--env", "lab", "--model", "absent"],
        ["--env", "lab", "--model", "FOLDER", "--args", "{"],
        ["FILE", "--model", "FOLDER", "--prompt-format", "BINARY"],
    ],
    "miles": [
        ["--recipe", "absent.yaml"],
        ["--recipe", "FOLDER"],
        ["--recipe", "BINARY"],
        ["--recipe", "BROKEN"],
        ["--mode", "nope"],
        ["--set", "x"],
        ["--set", "train.nope=1"],
    ],
    "recipes": [["--nope"]],
    "new": [
        ["My-Env"],
        ["json"],
        ["FOLDER"],
        ["fresh", "--page", "absent"],
        ["fresh", "--page", "BINARY"],
    ],
    "report": [["absent"], ["FILE"], ["FOLDER"], ["BROKENRUN"], ["RUN", "--out", "FOLDER"]],
    "run": [
        ["--recipe", "nope"],
        ["--recipe", "absent.yaml"],
        ["--recipe", "BINARY.yaml"],
        ["--recipe", "FOLDER.yaml"],
        ["--recipe", "smoke", "--set", "x"],
        ["--recipe", "smoke", "--set", "run.seed=1.5"],
        ["--recipe", "smoke", "--set", "policy.checkpoint=absent"],
        ["--recipe", "smoke", "--resume"],
        ["--recipe", "smoke", "--resume", "--overwrite"],
        ["--recipe", "smoke", "--name", ".."],
        ["--recipe", "smoke", "--name", "/tmp/x", "--overwrite"],
        ["--recipe", "smoke", "--name", "a/b"],
        ["--recipe", "smoke", "--name", ""],
        ["--recipe", "smoke", "--name", "a\nb"],
        ["--recipe", "smoke", "--name", "x" * 300],
        ["--seed", "x"],
    ],
    "serve": [
        ["--model", "absent"],
        ["--model", "FOLDER"],
        ["--model", "FOLDER", "--host", "0.0.0.0"],
        ["--model", "FOLDER", "--engine", "nope"],
    ],
    "sft": [
        ["--data", "absent"],
        ["--data", "FILE", "--recipe", "nope"],
        ["--data", "FILE", "--model", "absent"],
        ["--data", "FOLDER"],
        ["--data", "BINARY"],
        ["--data", "FILE", "--name", "../x", "--overwrite"],
    ],
    "show": [
        ["absent"],
        ["FOLDER"],
        ["BROKENRUN"],
        ["RUN", "--episode", "nope"],
        ["RUN", "--best", "--failures"],
    ],
    "smoke": [["--set", "x"], ["--set", "grpo.steps=-1"]],
}
"""Of each command, some of what people get wrong. Words in capitals are made by the fixture."""


def commands() -> list[str]:
    """Every command there is, as it is typed."""
    from cua_lab.cli import commands  # noqa: F401  (registers them)

    root = typer.main.get_command(app)
    found = []
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [name] if inner is None else [f"{name} {sub}" for sub in inner]
    return sorted(found)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`cua-lab` in a folder of its own, in which the things with names in capitals lie."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FOLDER.yaml").mkdir()
    (tmp_path / "FILE").write_text("{}\n")
    (tmp_path / "BROKEN").write_text('{"a": [1, {\n')
    for name in ("BINARY", "BINARY.yaml"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00\x81{")
    for name in ("RUN", "BROKENRUN"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text("")
    (tmp_path / "BROKENRUN/summary.json").write_bytes(b"\xff{")
    return lambda *arguments: cua_lab(monkeypatch, capsys, *arguments)


def test_every_command_is_walked() -> None:
    assert sorted(MISTAKES) == commands()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc and /dev/full are Linux")
@pytest.mark.parametrize(
    ("command", "arguments"),
    [(command, arguments) for command, listed in MISTAKES.items() for arguments in listed],
    ids=lambda value: value if isinstance(value, str) else " ".join(value)[:50].replace("\n", " "),
)
def test_a_mistake_is_one_line(run: Run, command: str, arguments: list[str]) -> None:
    """datasette#1226: a port of 70000 was an OverflowError; any OSError was a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = [port if argument == "TAKEN" else argument for argument in arguments]
        assert run(*command.split(), *given).one_line
    assert not Path("nope").exists()


@pytest.mark.parametrize("command", [["run", "--recipe", "smoke"], ["smoke"], ["sft"]])
def test_runs_that_is_a_file_is_one_line(run: Run, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "runs").write_text("")
    rows = '{"screenshot": "a.png", "instruction": "x", "coordinates": [0, 0]}\n'
    (tmp_path / "rows.jsonl").write_text(rows)
    more = ["--data", "rows.jsonl"] if command == ["sft"] else []
    assert "runs" in run(*command, *more).one_line


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
@pytest.mark.parametrize(
    "arguments",
    [
        ["data", "mint", "out.jsonl"],
        ["data", "draw", "out", "--count", "1"],
        ["data", "check", "FILE"],
        ["report", "RUN"],
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_a_full_or_read_only_disk_is_one_line_and_leaves_no_half_file(
    run: Run, tmp_path: Path, arguments: list[str], number: int
) -> None:
    def fail(name: str, path: Path) -> None:
        if name == "before rename":
            raise OSError(number, os.strerror(number), str(path))

    with files.watch_faults(fail):
        line = run(*arguments).one_line
    assert os.strerror(number) in line
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("home", [None, "/nonexistent"])
def test_without_a_home_the_commands_work(
    run: Run, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)
    assert run("data", "mint", "out.jsonl").status == 0
    assert run("report", "RUN").status == 0
    assert run("doctor").status in (0, 1)


def test_errors_are_plain_where_no_colour_is_wanted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """no-color.org: whatever NO_COLOR says, if it says anything."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert "\x1b[" in run("report", "absent").err
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("report", "absent").err


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    assert in_one_line(ValueError("a bug")) is None
    assert in_one_line(ExceptionGroup("several", [OSError(errno.ENOSPC, "full")])) is not None


def test_without_a_command_it_says_the_first_three_things_to_do(run: Run) -> None:
    ended = run()
    assert ended.status == 0
    assert [word in ended.out for word in ("cua-lab doctor", "cua-lab smoke", "make lab")]


def test_it_says_its_version(run: Run) -> None:
    from cua_lab import __version__

    assert run("--version").out == f"cua-lab {__version__}\n"


def test_the_recipes_are_listed_with_what_they_do_and_how_long(run: Run) -> None:
    lines = run("recipes").out.splitlines()
    listed = dict(zip(lines[::2], lines[1::2], strict=True))
    assert "two policies that look" in listed["cua-lab run --recipe laptop"]
    assert all(len(line) <= 100 and not line.startswith("#") for line in lines)
    assert "cua-lab sft --recipe sft-targets" in listed
    assert "laptop" in run("run", "--help").out


def test_the_formats_are_listed_in_the_help(run: Run) -> None:
    from cua_lab.dataset.formats import readers

    said = " ".join(run("data", "convert", "--help").out.replace("│", " ").split())
    assert all(name in said for name in readers())
