"""Who samples for a stage, as the recipe says: the engine in this process, or a server outside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cua_lab.engine.engine import Engine
from cua_lab.errors import LabError
from cua_lab.play.url_worker import UrlWorker
from cua_lab.play.worker import Worker
from cua_lab.run.stage_context import StageContext
from cua_lab.serving.outside import OutsideEngine

if TYPE_CHECKING:
    from cua_lab.policy.policy import Policy

AnyEngine = Engine | OutsideEngine
AnyWorker = Worker | UrlWorker


def open_engine(context: StageContext, policy: Policy, pushes: Path) -> tuple[AnyEngine, AnyWorker]:
    """The engine with its worker; `pushes` is where a server outside reads its weights."""
    settings, run, agent = context.recipe.engine, context.recipe.run, context.stage.agent
    shared: dict[str, Any] = {
        "concurrency": run.concurrency,
        "timeout_s": agent.timeout_s,
        "token_in": agent.token_in,
    }
    if settings.kind == "embedded":
        engine = Engine(
            policy,
            max_batch=settings.max_batch,
            cache_mib=settings.cache_mib,
            threads=run.threads,
        )
        return engine, Worker(engine, context.config, context.runtime, **shared)
    if settings.url is not None and context.stage.policy.checkpoint is None:
        raise LabError(
            "engine.url is a server with a tokenizer and a template of its own, so the policy must"
            " come from the same folder: set policy.checkpoint to what the server was started with,"
            " or leave engine.url out and the run launches an engine with its policy"
        )
    outside = OutsideEngine(
        policy,
        settings.kind,
        pushes,
        url=settings.url,
        name=settings.model,
        max_batch=settings.max_batch,
        flags=settings.flags,
        keep=settings.keep_pushes,
    )
    try:
        retries = settings.retries
        return outside, UrlWorker(
            outside, context.config, context.runtime, retries=retries, **shared
        )
    except BaseException:
        outside.close()
        raise
