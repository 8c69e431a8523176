"""`cua-lab serve` answers on loopback, says where, and stops cleanly."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

import cua_lab.cli.commands  # noqa: F401  (registers the commands)
from cua_lab.cli import app
from cua_lab.errors import LabError
from cua_lab.policy.policy import build_policy
from cua_lab.policy.shape import Shape
from cua_lab.policy.tokenizer import Corpus
from cua_lab.serving import launch


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = Shape(hidden=32, layers=1, vision_hidden=32, vision_depth=1)
    policy = build_policy(shape, Corpus(("click the red button",) * 2), seed=0)
    return policy.save(tmp_path_factory.mktemp("checkpoint") / "small")


def test_a_checkpoint_is_served_until_ctrl_c(checkpoint: Path) -> None:
    command = [sys.executable, "-c", "from cua_lab.cli import main; main()", "serve"]
    server = subprocess.Popen(
        [*command, "--model", str(checkpoint), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert server.stdout is not None
    try:
        lines = iter(server.stdout.readline, "")
        found = next(m for line in lines if (m := re.search(r"http://127\.0\.0\.1:\d+/v1", line)))
        body = {"messages": [{"role": "user", "content": "Go"}], "max_tokens": 3}
        assert "as 'small'" in found.string, "a client must know what to call it"
        answer = httpx.post(f"{found[0]}/chat/completions", json=body, timeout=30)
        assert answer.json()["usage"]["completion_tokens"] == 3
        server.send_signal(signal.SIGINT)
        assert server.wait(10) == 0
        assert "stopped" in server.stdout.read()
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_an_address_that_others_reach_needs_to_be_asked_for(checkpoint: Path) -> None:
    result = CliRunner().invoke(app, ["serve", "--model", str(checkpoint), "--host", "0.0.0.0"])
    assert isinstance(result.exception, LabError)
    assert "--expose" in str(result.exception)


def test_a_folder_that_is_no_checkpoint_is_one_clear_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["serve", "--model", str(tmp_path), "--port", "0"])
    assert isinstance(result.exception, LabError)
    assert "not a checkpoint" in str(result.exception)


@pytest.mark.parametrize("engine", ["embedded", "vllm", "sglang"])
def test_a_port_that_does_not_exist_is_one_clear_error(checkpoint: Path, engine: str) -> None:
    """datasette#1226."""
    typed = ["serve", "--model", str(checkpoint), "--engine", engine, "--port", "70000"]
    result = CliRunner().invoke(app, typed)
    assert isinstance(result.exception, LabError)
    assert "port 70000 does not exist" in str(result.exception)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["--", "--dtype", "float32"], "takes no flags of its own"),
        (["--engine", "vllm", "--cache-mib", "8"], "--cache-mib is the embedded engine's"),
        (["--engine", "vllm", "--host", "::1"], "127.0.0.1 only"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_and_not_ignored(
    checkpoint: Path, typed: list[str], words: str
) -> None:
    result = CliRunner().invoke(app, ["serve", "--model", str(checkpoint), *typed])
    assert isinstance(result.exception, LabError)
    assert words in str(result.exception)


def test_options_and_flags_reach_a_real_engine(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--max-batch --seed --threads` were ignored without a word."""
    started: dict[str, object] = {}

    @contextlib.contextmanager
    def launched(kind, model, **options):
        started.update(options, kind=kind.name)
        raise LabError("seen")
        yield

    monkeypatch.setattr(launch, "launched", launched)
    typed = "--engine vllm --max-batch 4 --seed 2 --threads 3 --name m --context-length 99"
    flags = ["--", "--kv-cache-dtype", "fp8"]
    CliRunner().invoke(app, ["serve", "--model", str(checkpoint), *typed.split(), *flags])
    del started["say"]
    assert started == {
        "kind": "vllm",
        "port": 30001,
        "name": "m",
        "context_length": 99,
        "max_batch": 4,
        "seed": 2,
        "threads": 3,
        "arguments": ("--kv-cache-dtype", "fp8"),
    }
