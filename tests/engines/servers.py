"""The servers that answer to the contract, each started as a user would start it.

A `Server` is a URL, the dialect it speaks and what it is able to do. Invariant: an engine that is
not here is skipped with the launcher's own reason, never installed by a test.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from cua_lab.serving import launch

NAME = "policy"
CONTEXT = 2048


@dataclass(frozen=True, slots=True)
class Server:
    """One running inference server."""

    name: str
    url: str
    """Ends before `/v1`."""
    dialect: Literal["sglang", "vllm"]
    logprob_gap: float
    """How far its float32 may be from transformers' float32."""
    forbids_itself: bool = False
    """Whether it knows the ids that its policy must not say."""
    token_in: str = ""
    """Why it cannot continue from ids; empty where it can."""
    seeded: str = ""
    """Why equal seeds do not give equal tokens; empty where they do."""
    says_version: bool = True
    """Whether an answer names the weights that sampled it."""


@contextmanager
def embedded(checkpoint: Path) -> Iterator[Server]:
    """The lab's own engine behind uvicorn on a loopback port, in a thread."""
    import uvicorn

    from cua_lab.engine.engine import Engine
    from cua_lab.policy.policy import load_policy
    from cua_lab.serving.server import create_app

    engine = Engine(load_policy(checkpoint), context_length=CONTEXT)
    config = uvicorn.Config(create_app(engine, model_name=NAME), port=0, log_level="warning")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, name="uvicorn", daemon=True)
    thread.start()
    try:
        while not running.started:
            assert thread.is_alive(), "uvicorn ended before it answered"
            time.sleep(0.01)
        port = running.servers[0].sockets[0].getsockname()[1]
        yield Server(
            "embedded", f"http://127.0.0.1:{port}", "sglang", logprob_gap=1e-5, forbids_itself=True
        )
    finally:
        running.should_exit = True
        thread.join()
        engine.close()


@contextmanager
def vllm(checkpoint: Path) -> Iterator[Server]:
    """A real vLLM, on a CPU."""
    with _real(launch.VLLM, checkpoint) as url:
        yield Server(
            "vllm",
            url,
            "vllm",
            logprob_gap=5e-4,
            token_in="vLLM's chat ignores input_ids, and its /generate is off by default",
            says_version=False,
        )


@contextmanager
def sglang(checkpoint: Path) -> Iterator[Server]:
    """A real sglang, on an NVIDIA GPU, in float32 so that log-probabilities can be compared."""
    with _real(launch.SGLANG, checkpoint, "--dtype", "float32") as url:
        yield Server(
            "sglang",
            url,
            "sglang",
            logprob_gap=5e-4,
            seeded="sglang ignores seeds unless deterministic inference is on",
        )


SERVERS = {"embedded": embedded, "vllm": vllm, "sglang": sglang}


@contextmanager
def _real(kind: launch.EngineKind, checkpoint: Path, *arguments: str) -> Iterator[str]:
    if reason := launch.why_absent(kind):
        pytest.skip(reason)
    with launch.launched(
        kind,
        checkpoint,
        context_length=CONTEXT,
        arguments=("--served-model-name", NAME, *arguments),
        timeout_s=900,
        say=lambda text: None,
    ) as running:
        yield running.url
