"""A policy measured on the tasks of a HUD env package: episodes, success rates, film strips.

    rows ──play (embedded engine | any OpenAI-compatible server)──▶ episodes ──▶ TaskReport

Rates come overall and by task, with Wilson's 95% interval where a task says success or not, and as
a mean with its standard error for rewards. Invariant: a failed episode (dead screen, refused
request) is counted as `failed` and enters no rate.
"""

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import httpx

from cua_lab.errors import LabError
from cua_lab.play.episode import Episode, play, play_slots
from cua_lab.play.worker import Plan, Worker
from cua_lab.stats import Estimate, Rate, estimate, wilson

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
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .3rem .6rem; text-align: left; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr + tr td { border-top: 1px solid #8884; } img { max-width: 100%; height: auto; display: block; }
.strips { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
figure { margin: 0; max-width: 100%; } figcaption { color: #777; }
"""


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
        from cua_lab.records import to_json

        return to_json(
            {
                "overall": asdict(self.overall),
                "by_task": {name: asdict(result) for name, result in self.by_task.items()},
                "episodes": [
                    {
                        "id": episode.id,
                        "task": episode.task,
                        "status": episode.status,
                        "reward": episode.reward,
                        "success": episode.success,
                        "actions": [dict(a.arguments or {}) for a in episode.actions],
                        "error": episode.error,
                    }
                    for episode in self.episodes
                ],
            }
        )

    def to_html(self, title: str = "Tasks") -> str:
        """A self-contained page: the rates, then film strips."""
        from cua_lab.viz.page import page

        rows = [("all", self.overall), *self.by_task.items()]
        head = "".join(
            f"<th class='n'>{name}</th>" for name in ("success", "95%", "reward", "valid", "failed")
        )
        body = f"<h1>{escape(title)}</h1><table><tr><th></th>{head}</tr>"
        body += "".join(_table_row(name, result) for name, result in rows) + "</table>"
        most = max(1, min(PICTURED, PICTURES // max(1, len(self.by_task))))
        for name in self.by_task:
            mine = [e for e in self.episodes if e.task == name and e.screenshots]
            shown = sorted(mine, key=lambda e: bool(e.success))[:most]
            body += f"<h2>{escape(name)}</h2>"
            strips = "".join(_strip(episode, self.coordinate_space) for episode in shown)
            body += f"<div class='strips'>{strips}</div>"
        return page(title=title, body=body, style=_STYLE)


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
        valid_tool_calls=estimate(a.valid for episode in graded for a in episode.actions),
        failed=len(episodes) - len(graded),
    )


def _table_row(name: str, result: TaskResult) -> str:
    rate, reward, valid = result.success, result.reward, result.valid_tool_calls
    success = "-" if rate is None or rate.rate is None else f"{rate.rate:.1%}"
    interval = "-" if rate is None or rate.low is None else f"{rate.low:.1%} - {rate.high:.1%}"
    mean = format_estimate(reward)
    calls = "-" if valid is None else f"{valid.mean:.1%}"
    cells = (success, interval, mean, calls, str(result.failed))
    numbers = "".join(f"<td class='n'>{cell}</td>" for cell in cells)
    return f"<tr><td>{escape(name)}</td>{numbers}</tr>"


def format_estimate(reward: Estimate | None) -> str:
    """The mean with its standard error, which one episode has not."""
    if reward is None:
        return "-"
    return f"{reward.mean:.3f}" + ("" if math.isnan(reward.se) else f" ± {reward.se:.3f}")


def _strip(episode: Episode, space: str) -> str:
    from cua_lab.viz.filmstrip import filmstrip

    buffer = io.BytesIO()
    filmstrip(episode, coordinate_space=space).save(buffer, format="PNG", optimize=True)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    said = {True: "success", False: "no success", None: "graded"}[episode.success]
    words = f"{episode.id}: {said}, reward {episode.reward}"
    alt = f"Screenshots and actions of episode {episode.id}"
    return (
        f"<figure><img src='data:image/png;base64,{data}' alt='{escape(alt)}'>"
        f"<figcaption>{escape(words)}</figcaption></figure>"
    )


def evaluation_plans(
    package: str,
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
    from cua_lab.seeds import derive_seed
    from cua_lab.tasks import row_of, to_hud_task, with_args

    chosen = _chosen(package, names, split)
    episodes = episodes or (ALONE if len(chosen) == 1 else AMONG_OTHERS)
    seeds = [derive_seed(seed, "evaluate", index) % 2**31 for index in range(episodes)]
    rows = [
        row_of(task, with_args(task, {**args, "seed": start})) for task in chosen for start in seeds
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


def _chosen(package: str, names: Sequence[str] | None, split: str | None) -> list["Task"]:
    """The tasks that are meant: a name is looked up in the split, or in all that there is."""
    import importlib

    from cua_lab.tasks import load_tasks, select

    tasks = load_tasks(package)
    split_of = getattr(importlib.import_module(f"{package}.tasks"), "split", None)
    if split is not None:
        if split_of is None:
            raise LabError(f"{package} has one set of tasks: leave --split out")
        tasks = split_of(split)
    if names is None:
        return tasks
    slugs = {task.slug for task in tasks}
    if split is None and split_of is not None and not slugs.issuperset(names):
        tasks = split_of("all")
        slugs = {task.slug for task in tasks}
    by_template = {task.id: task.slug for task in reversed(tasks) if task.slug}
    return select(tasks, [name if name in slugs else by_template.get(name, name) for name in names])


def concurrency_for(package: str, asked: int | None) -> int:
    """How many episodes to play at a time: as asked, or what the package can take."""
    most = getattr(_env(package), "MOST_AT_ONCE", None)
    if asked is None:
        return min(USUAL, most or USUAL)
    if most is not None and asked > most:
        raise LabError(
            f"{package} plays at most {most} episodes at a time in one process, each in a browser "
            f"of its own; got --concurrency {asked}"
        )
    return asked


def tool_config_for(package: str, config: "ToolConfig") -> "ToolConfig":
    """The policy's tool on the package's screens: on a real one it waits until nothing moves."""
    return replace(config, **getattr(_env(package), "TOOL", {}))


def _env(package: str) -> Any:
    import importlib

    return importlib.import_module(f"{package}.env")


async def play_with_policy(
    policy: "Policy",
    plans: Sequence[Plan],
    config: "LabAgentConfig",
    runtime: Any,
    *,
    concurrency: int = 32,
    threads: int = 1,
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """A policy in this process plays."""
    from cua_lab.engine.engine import Engine

    engine = Engine(policy, max_batch=concurrency, threads=threads)
    try:
        worker = Worker(engine, config, runtime, concurrency=concurrency, on_episode=on_episode)
        return await worker.play(plans)
    finally:
        engine.close()


async def play_with_server(
    base_url: str,
    plans: Sequence[Plan],
    config: "LabAgentConfig",
    runtime: Any,
    *,
    key: str | None = None,
    concurrency: int = 8,
    timeout_s: float = 600.0,
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Any OpenAI-compatible server plays; no token ids are asked for."""

    def seated(plan: Plan) -> Callable[[int], Any]:
        async def run(_: int) -> Episode:
            episode = await play(
                plan.task,
                config,
                Keyed(httpx.AsyncHTTPTransport(), key),
                runtime=runtime,
                id=plan.id,
                group=plan.group,
                timeout_s=timeout_s,
                base_url=base_url,
            )
            if on_episode is not None:
                on_episode(episode)
            return episode

        return run

    return await play_slots(
        [seated(plan) for plan in plans], concurrency=concurrency, leave=lambda k: None
    )


class Keyed(httpx.AsyncBaseTransport):
    """Adds the server's key, which appears nowhere else, to every request."""

    def __init__(self, inner: httpx.AsyncBaseTransport, key: str | None) -> None:
        self._inner, self._key = inner, key

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._key:
            request.headers["authorization"] = f"Bearer {self._key}"
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def read_key(path: str) -> str:
    """A server's key from its file."""
    from pathlib import Path

    try:
        key = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        raise LabError(f"the key file {path} cannot be read: {error.strerror}") from error
    if not key:
        raise LabError(f"the key file {path} is empty")
    return key
