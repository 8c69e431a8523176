"""A policy measured on the tasks of a HUD env package: episodes, success rates, film strips.

    rows ──play (embedded engine | any OpenAI-compatible server)──▶ episodes ──▶ TaskReport

Rates come overall and by task, with Wilson's 95% interval where a task says success or not, and as
a mean with its standard error for rewards. Invariant: a failed episode (dead screen, refused
request) is counted as `failed` and enters no rate.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx

from cua_lab.engine.engine import Engine
from cua_lab.env_package import EnvPackage
from cua_lab.errors import LabError
from cua_lab.hud_quirks import env_of, template_parameters
from cua_lab.pictures import data_url, png_bytes
from cua_lab.play.episode import Episode, play, play_slots
from cua_lab.play.worker import Plan, Worker
from cua_lab.records import to_json
from cua_lab.run.forbidden_acts import count_forbidden
from cua_lab.run.gate_record import counts_of, risky_calls
from cua_lab.safety.redaction import redact
from cua_lab.seeds import derive_seed, turn_seed
from cua_lab.serving.loopback import open_transport
from cua_lab.serving.server_check import check_server
from cua_lab.stats import Estimate, Rate, estimate, wilson
from cua_lab.tasks import row_of, select, to_hud_task, with_args
from cua_lab.viz.filmstrip import filmstrip
from cua_lab.viz.page import page_of

if TYPE_CHECKING:
    from hud.eval import Task

    from cua_lab.computer.config import ToolConfig
    from cua_lab.play.agent import LabAgentConfig
    from cua_lab.policy.policy import Policy

PICTURED, PICTURES = 4, 32
"""Film strips a task and in all, one a task at least: failures first, since they teach more."""
ALONE, AMONG_OTHERS = 64, 8
"""Start states of a task."""
USUAL = 32
"""Episodes at a time, where the env can take as many."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task, measured."""

    success: Rate | None
    """`None` where the task has no yes or no."""
    reward: Estimate | None
    valid_tool_calls: Estimate | None
    """Share of the model's answers that were executed."""
    failed: int
    """Episodes that measure nothing."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What an evaluation on tasks found."""

    overall: TaskResult
    by_task: Mapping[str, TaskResult]
    episodes: tuple[Episode, ...]
    coordinate_space: str = "0-1000"

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record, one entry an episode included; screenshots stay out."""
        record: dict[str, Any] = to_json(
            {
                "overall": asdict(self.overall),
                "gate": counts_of(self.episodes),
                "forbidden_acts": {
                    name: asdict(count) for name, count in count_forbidden(self.episodes).items()
                },
                "by_task": {name: asdict(result) for name, result in self.by_task.items()},
                "episodes": [
                    {
                        "id": episode.id,
                        "task": episode.task,
                        "status": episode.status,
                        "reward": episode.reward,
                        "success": episode.success,
                        "actions": [redact(dict(a.arguments or {})) for a in episode.actions],
                        "gate": None if episode.judged is None else risky_calls(episode),
                        "error": episode.error,
                    }
                    for episode in self.episodes
                ],
            }
        )
        return record

    def to_html(self, title: str = "Tasks") -> str:
        """A self-contained page: the rates, then film strips."""
        rows = [("all", self.overall), *self.by_task.items()]
        most = max(1, min(PICTURED, PICTURES // max(1, len(self.by_task))))
        tasks = []
        for name in self.by_task:
            mine = [e for e in self.episodes if e.task == name and e.screenshots]
            shown = sorted(mine, key=lambda e: bool(e.success))[:most]
            tasks.append((name, [_strip(episode, self.coordinate_space) for episode in shown]))
        return page_of(
            "tasks.html.jinja",
            title=title,
            columns=("success", "95%", "reward", "valid", "failed"),
            rows=[(name, _cells(result)) for name, result in rows],
            tasks=tasks,
        )


def summarise(episodes: Sequence[Episode], *, coordinate_space: str = "0-1000") -> TaskReport:
    """Count what was played."""
    names = dict.fromkeys(episode.task for episode in episodes)
    by_task = {name: _result([e for e in episodes if e.task == name]) for name in names}
    return TaskReport(_result(episodes), by_task, tuple(episodes), coordinate_space)


def _result(episodes: Sequence[Episode]) -> TaskResult:
    graded = [episode for episode in episodes if episode.status != "failed"]
    said = [episode.success for episode in graded if episode.success is not None]
    return TaskResult(
        success=wilson(sum(said), len(said)) if said else None,
        reward=estimate(episode.reward for episode in graded),
        valid_tool_calls=estimate(a.well_formed for episode in graded for a in episode.actions),
        failed=len(episodes) - len(graded),
    )


def _cells(result: TaskResult) -> tuple[str, ...]:
    rate, reward, valid = result.success, result.reward, result.valid_tool_calls
    success = "-" if rate is None or rate.rate is None else f"{rate.rate:.1%}"
    interval = "-" if rate is None or rate.low is None else f"{rate.low:.1%} - {rate.high:.1%}"
    mean = format_estimate(reward)
    calls = "-" if valid is None else f"{valid.mean:.1%}"
    return success, interval, mean, calls, str(result.failed)


def format_estimate(reward: Estimate | None) -> str:
    """The mean with its standard error, which one episode does not have."""
    if reward is None:
        return "-"
    return f"{reward.mean:.3f}" + ("" if math.isnan(reward.se) else f" ± {reward.se:.3f}")


def _strip(episode: Episode, space: str) -> dict[str, str]:
    strip = filmstrip(episode, coordinate_space=space)
    said = {True: "success", False: "no success", None: "graded"}[episode.success]
    return {
        "source": data_url(png_bytes(strip, compress_level=9)),
        "alt": f"Screenshots and actions of episode {episode.id}",
        "words": f"{episode.id}: {said}, reward {episode.reward}",
    }


def evaluation_plans(
    package: EnvPackage,
    names: Sequence[str] | None,
    *,
    args: Mapping[str, Any],
    episodes: int | None = None,
    seed: int,
    split: str | None = None,
) -> list[Plan]:
    """`episodes` start states of each task, which a slug or a template of the package names.

    `split` is one of the package's own sets; without it, and without names, its `tasks` are played.
    `episodes` is by default 64 of one task and 8 each of several.
    """
    chosen = _chosen(package, names, split)
    episodes = episodes or (ALONE if len(chosen) == 1 else AMONG_OTHERS)
    seeds = [derive_seed(seed, "evaluate", index) % 2**31 for index in range(episodes)]
    rows = [
        row_of(task, with_args(task, {**args, **_start(task, start)}))
        for task in chosen
        for start in seeds
    ]
    return [
        Plan(
            task=to_hud_task(row),
            id=f"{row['label']}-{index % episodes}",
            group=f"{row['label']}-{index % episodes}",
            seed=derive_seed(seed, "evaluate", row["label"], index),
        )
        for index, row in enumerate(rows)
    ]


def _start(task: Task, seed: int) -> dict[str, int]:
    """The start state's seed; nothing for a template that takes none."""
    env = env_of(task)
    takes = env is None or "seed" in template_parameters(env, task.id)
    return {"seed": seed} if takes else {}


def _chosen(package: EnvPackage, names: Sequence[str] | None, split: str | None) -> list[Task]:
    """The tasks that are meant: a name is looked up in the split, or in all that there is."""
    tasks = list(package.tasks)
    if split is not None:
        if package.split is None:
            raise LabError(f"{package.source} has one set of tasks: leave --split out")
        tasks = package.split(split)
    if names is None:
        return tasks or package.public_tasks()
    slugs = {task.slug for task in tasks}
    if split is None and package.split is not None and not slugs.issuperset(names):
        tasks = package.split("all")
        slugs = {task.slug for task in tasks}
    by_template = {task.id: task.slug for task in reversed(tasks) if task.slug}
    return select(tasks, [name if name in slugs else by_template.get(name, name) for name in names])


def concurrency_for(package: EnvPackage, asked: int | None) -> int:
    """How many episodes to play at a time: as asked, or what the package can take."""
    if asked is None:
        return min(USUAL, package.most_at_once or USUAL)
    package.check_concurrency(asked, "--concurrency")
    return asked


def tool_config_for(package: EnvPackage, config: ToolConfig) -> ToolConfig:
    """The policy's tool on the package's screens: on a real one it waits until nothing moves."""
    return replace(config, **package.tool)


async def play_with_policy(
    policy: Policy,
    plans: Sequence[Plan],
    config: LabAgentConfig,
    runtime: Any,
    *,
    concurrency: int = 32,
    threads: int = 1,
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """A policy in this process plays."""
    engine = Engine(policy, max_batch=concurrency, threads=threads)
    try:
        worker = Worker(engine, config, runtime, concurrency=concurrency, on_episode=on_episode)
        return await worker.play(plans)
    finally:
        engine.close()


async def play_with_server(
    base_url: str,
    plans: Sequence[Plan],
    config: LabAgentConfig,
    runtime: Any,
    *,
    key: str | None = None,
    concurrency: int = 8,
    timeout_s: float = 600.0,
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Any OpenAI-compatible server plays; no token ids are asked for.

    After an episode that failed the server is asked whether it still answers; once it is gone,
    what is left counts as failed without the boot of a desktop.
    """
    gone: list[str] = []

    async def play_one(plan: Plan, _: int) -> Episode:
        if gone:
            return _unplayed(plan, gone[0])
        episode = await play(
            plan.task,
            config,
            Keyed(open_transport(base_url), key, seed=plan.seed),
            runtime=runtime,
            id=plan.id,
            group=plan.group,
            timeout_s=timeout_s,
            base_url=base_url,
        )
        if episode.status == "failed" and not gone:
            try:
                await check_base_url(base_url, key, config.model)
            except LabError as error:
                gone.append(str(error))
        if on_episode is not None:
            on_episode(episode)
        return episode

    with quiet_failures():
        return await play_slots(plans, play_one, concurrency=concurrency)


async def check_base_url(base_url: str, key: str | None, model: str) -> None:
    """`check_server` for a base URL: one line about what is wrong, before any desktop boots."""
    async with server_client(base_url, key) as http:
        await check_server(http, model)


def server_client(base_url: str, key: str | None) -> httpx.AsyncClient:
    """A client of a server under test; no proxy stands before this machine."""
    return httpx.AsyncClient(
        transport=open_transport(base_url),
        headers={"authorization": f"Bearer {key}"} if key else {},
        base_url=base_url,
        timeout=600,
        trust_env=False,
    )


def _unplayed(plan: Plan, why: str) -> Episode:
    return Episode(
        id=plan.id,
        group=plan.group,
        task=plan.task.slug,
        turns=(),
        actions=(),
        screenshots=(),
        reward=None,
        status="failed",
        error=f"not played: {why}",
    )


@contextlib.contextmanager
def quiet_failures() -> Iterator[None]:
    """HUD logs each failed call with 74 lines of traceback; the report has the words."""
    logger = logging.getLogger("hud")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


class Keyed(httpx.AsyncBaseTransport):
    """Adds to every request the server's key, which appears nowhere else, and a turn's seed."""

    def __init__(
        self, inner: httpx.AsyncBaseTransport, key: str | None, *, seed: int | None = None
    ) -> None:
        """`seed` is the episode's: every turn samples with one of its own derived from it."""
        self._inner, self._key, self._seed = inner, key, seed
        self._turns = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._key:
            request.headers["authorization"] = f"Bearer {self._key}"
        if self._seed is not None and request.url.path.endswith("/chat/completions"):
            request = _with_seed(request, turn_seed(self._seed, self._turns))
            self._turns += 1
        try:
            return await self._inner.handle_async_request(request)
        except httpx.TransportError as error:
            words = str(error) or type(error).__name__
            raise type(error)(f"cannot reach {request.url}: {words}") from error

    async def aclose(self) -> None:
        await self._inner.aclose()


def _with_seed(request: httpx.Request, seed: int) -> httpx.Request:
    body = json.loads(request.content)
    headers = request.headers.copy()
    headers.pop("content-length", None)
    return httpx.Request(
        request.method,
        request.url,
        headers=headers,
        content=json.dumps({"seed": seed} | body).encode(),
        extensions=request.extensions,
    )
