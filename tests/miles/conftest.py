"""A warm smoke policy behind a real HTTP server, where Miles' router would be."""

import contextlib
import copy
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cua_lab.engine.engine import Engine
from cua_lab.miles.recipe import KEY, load_miles_recipe
from cua_lab.policy.policy import Policy
from cua_lab.recipes import Stage, load_recipe
from cua_lab.recipes.loader import to_tree

TURNS = 2
WARM_UP = 32
"""Optimizer steps; enough for calls that press keys most of the time."""


@pytest.fixture(scope="session")
def game() -> Stage:
    return load_recipe("smoke", [f"sft.steps={WARM_UP}"]).stage("game")


@pytest.fixture(scope="session")
def warm_policy(game: Stage) -> Policy:
    """Valid calls most of the time, so that rewards differ within a group."""
    from cua_lab.run.stage_context import build_stage, demonstrator_of, new_policy
    from cua_lab.training.warmup import sft_steps

    recipe = load_recipe("smoke", [f"sft.steps={WARM_UP}"])
    context = build_stage(recipe, game)
    policy = new_policy(context, demonstrator_of(context))
    for _ in sft_steps(policy, demonstrator_of(context), game.sft):
        pass
    return policy


@pytest.fixture(scope="session")
def checkpoint(warm_policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return warm_policy.save(tmp_path_factory.mktemp("checkpoint"))


@contextlib.contextmanager
def served(policy: Policy) -> Iterator[tuple[str, int]]:
    """The engine over real HTTP on loopback, in a thread of its own."""
    import uvicorn

    from cua_lab.serving.server import create_app

    engine = Engine(policy)
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    server = uvicorn.Server(uvicorn.Config(create_app(engine), log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield host, port
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        engine.close()
        listener.close()


@pytest.fixture(scope="session")
def router(warm_policy: Policy) -> Iterator[tuple[str, int]]:
    with served(warm_policy) as address:
        yield address


@pytest.fixture(scope="session")
def session_args(router: tuple[str, int], checkpoint: Path, game: Stage) -> Any:
    """Miles' args as the plug-in reads them: the recipe file, the router, the model."""
    tool, agent = game.tool, game.agent
    recipe = load_miles_recipe(
        overrides=[
            "runtime.kind=local",
            f"tool.actions=[{', '.join(tool.actions or ())}]",
            "tool.screenshot_width=null",
            f"tool.max_keys_per_call={tool.max_keys_per_call}",
            "tool.pace_ms=0",
            f"agent.max_turns={TURNS}",
            f"agent.max_tokens={agent.max_tokens}",
            "agent.short_prompt=true",
            "agent.stop_on=[]",
            "agent.timeout_s=30",
        ]
    )
    return SimpleNamespace(
        sglang_router_ip=router[0],
        sglang_router_port=router[1],
        hf_checkpoint=str(checkpoint),
        partial_rollout=False,
        train_backend="fsdp",
        micro_batch_size=1,
        use_dynamic_batch_size=False,
        data_pad_size_multiplier=128,
        **{KEY: to_tree(recipe)},
    )


@pytest.fixture
def miles_args(session_args: Any) -> Any:
    """A copy that a test may change."""
    return copy.deepcopy(session_args)
