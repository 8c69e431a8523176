"""A real engine is installed whole or not at all, and ends with everything it started."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from cua_lab.errors import LabError
from cua_lab.serving import launch
from cua_lab.serving.launch import SGLANG, VLLM, EngineKind, environment_of, launched

FAKE = """
import argparse, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

parser = argparse.ArgumentParser()
for flag in ("--model", "--host", "--max-model-len", "--die"):
    parser.add_argument(flag)
parser.add_argument("--port", type=int)
known = parser.parse_args()
if known.die:
    sys.exit("no such architecture")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{known.model} {known.max_model_len} {child.pid}".encode())


HTTPServer((known.host, known.port), Handler).serve_forever()
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineKind:
    """An engine of twenty lines, in an environment that looks as if it had been installed."""
    (tmp_path / "fake_engine.py").write_text(FAKE)
    monkeypatch.setenv("CUA_LAB_ENGINES", str(tmp_path / "engines"))
    kind = replace(
        VLLM,
        name="fake",
        packages=("fake==1",),
        module="fake_engine",
        fixed=(),
        environment=(("PYTHONPATH", str(tmp_path)),),
        mend="",
        dispensable=(),
    )
    folder = tmp_path / "engines" / "fake"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "made.json").write_text(json.dumps(["fake==1"]))
    return kind


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path / "model"


def is_running(pid: int) -> bool:
    """A zombie has ended, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(pid: int, patience_s: float = 60) -> bool:
    """A process that was killed is gone when the kernel comes to it, on a busy machine later."""
    deadline = time.monotonic() + patience_s
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_an_engine_answers_inside_the_block_and_is_gone_after_it(
    fake: EngineKind, model: Path
) -> None:
    said: list[str] = []
    with launched(fake, model, context_length=77, say=said.append) as engine:
        where, length, child = httpx.get(f"{engine.url}/x").text.split()
        assert (where, length) == (str(model), "77")
        assert engine.url in said[-1]
        assert is_running(int(child))
    assert engine.process.poll() is not None
    assert ends(int(child))


def test_an_engine_that_dies_is_reported_with_its_last_words(fake: EngineKind, model: Path) -> None:
    """Not by waiting ten minutes for its health."""
    with (
        pytest.raises(LabError, match=r"ended with status 1(.|\n)*no such architecture"),
        launched(fake, model, arguments=("--die", "yes"), say=lambda _: None),
    ):
        pass


def test_an_environment_that_was_not_finished_is_not_used(
    fake: EngineKind, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = launch.engines_home() / "fake" / "made.json"
    assert environment_of(fake) is not None
    assert environment_of(replace(fake, packages=("fake==2",))) is None
    made.unlink()
    assert environment_of(fake) is None
    commands: list[list[str]] = []
    monkeypatch.setattr(launch, "_install", lambda command, kind: commands.append(command))
    (launch.engines_home() / "fake" / "left over").write_text("x")
    monkeypatch.setattr(launch.shutil, "rmtree", lambda path, **_: commands.append(["rm", path]))
    launch.make_environment(fake, lambda _: None)
    assert [c[0] for c in commands] == [
        "rm",
        sys.executable,
        str(launch.engines_home() / "fake" / "bin" / "python"),
    ]
    assert json.loads(made.read_text()) == ["fake==1"]


def test_an_engine_without_its_gpu_says_so(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.shutil, "which", lambda _: None)
    with pytest.raises(LabError, match="sglang needs an NVIDIA GPU"), launched(SGLANG, model):
        pass


def test_a_folder_that_is_no_checkpoint_starts_nothing(fake: EngineKind, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="not a checkpoint"), launched(fake, tmp_path):
        pass
