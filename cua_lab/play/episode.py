"""One episode: a HUD task played by the lab's agent, and what is kept of it.

    task ──HUD Task.run──▶ LabAgent ──ChatClient──▶ transport (shim ▶ server)
                │         └──AnswersClient──▶ engine | scripted player, in this process
                │
                └──▶ Episode: turns (ids), actions (what was done), screenshots, reward, status

Invariant: `reward` is a number exactly when the grader graded a live episode; a dead screen, a
server's error, an answer without a token, or a grader that could not read its state, gave no grade
or one that is none, make a `failed` episode with no reward and the cause in words.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import httpx

from cua_lab.hud_quirks import keep_type_adapters, refuse_missing_grades
from cua_lab.pictures import read_base64
from cua_lab.play.agent import LabAgent
from cua_lab.play.gate_seat import GateSeat
from cua_lab.safety.judged import REFUSED
from cua_lab.safety.redaction import redact
from cua_lab.serving.answers import without_surrogates
from cua_lab.serving.client import ChatClient
from cua_lab.serving.in_process import AnswersClient, InProcess
from cua_lab.stitching.turn import Turn
from cua_lab.waiting import progressed, waiting

if TYPE_CHECKING:
    from hud.agents.types import AgentStep, ToolStep
    from hud.eval import Job, Provider, Run, Task
    from hud.types import Step

    from cua_lab.play.agent import LabAgentConfig
    from cua_lab.safety.judged import Judged

P = TypeVar("P")
R = TypeVar("R")
Status = Literal["completed", "truncated", "failed"]
TRUNCATIONS = frozenset({"length", "max_tokens", "malformed_tool_call"})
"""HUD's stop reasons of an episode that an unusable answer ended."""
LARGEST_REWARD = 3.4e38
"""What float32 holds: an advantage beyond it is infinite, and so is the loss."""


@dataclass(frozen=True, slots=True)
class Action:
    """What one model call led to."""

    arguments: Mapping[str, Any] | None
    """Of the `computer` call; `None` where the answer held no readable call."""
    valid: bool
    """Whether every call of the turn was executed."""
    text: str
    """The model's words, or the tool's complaint."""
    screenshot: bytes | None
    """PNG after the action; `None` where nothing was executed."""
    thought: str = ""
    """What the model said: before its call, or instead of one."""
    refused: bool = False
    """Whether every call of the turn was well formed and a gate did not do one or more."""
    saw: int | None = None
    """Which of the episode's screenshots was the last one shown before it; `None` before any."""

    @property
    def well_formed(self) -> bool:
        """Whether the model said calls that can be done: executed, or refused by a gate."""
        return self.valid or self.refused

    @property
    def keys(self) -> int:
        """How many keys were pressed."""
        keys = (self.arguments or {}).get("keys") if self.valid else None
        return len(keys) if isinstance(keys, list) else 0


@dataclass(frozen=True, slots=True)
class Episode:
    """Everything that training, evaluation and pictures need of one episode."""

    id: str
    group: str
    """Members of a group start from the same state."""
    task: str
    """The task's slug."""
    turns: tuple[Turn, ...]
    """Token ids as the server returned them; empty for a scripted player."""
    actions: tuple[Action, ...]
    screenshots: tuple[bytes, ...]
    """PNGs in the order in which the prompts show them."""
    reward: float | None
    status: Status
    success: bool | None = None
    """As the grader says; `None` where the task has no yes or no."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """What the grader saw: score, moves, hit, ..."""
    error: str | None = None
    """Why it failed."""
    seconds: float = 0.0
    judged: tuple[Judged, ...] | None = None
    """What the gate decided about each call; `None` where no gate stood before the tool."""
    penalty: float = 0.0
    """What training takes off the reward for what was risky."""
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """What was typed in secret: in memory alone, so that whoever writes can leave it out."""

    def __post_init__(self) -> None:
        if (self.reward is None) != (self.status == "failed"):
            raise ValueError(
                f"episode {self.id} is {self.status} with reward {self.reward};"
                " a failed episode has none, every other has one"
            )

    @property
    def trained_reward(self) -> float | None:
        """What training compares: the grader's reward less the gate's penalty."""
        return None if self.reward is None else self.reward - self.penalty


async def play(
    task: Task,
    config: LabAgentConfig,
    transport: httpx.AsyncBaseTransport | InProcess,
    *,
    runtime: Provider,
    id: str,
    group: str,
    timeout_s: float = 120.0,
    turns: Callable[[], tuple[Turn, ...]] = tuple,
    base_url: str = "http://engine/v1/",
) -> Episode:
    """Play one episode through HUD and grade it.

    `transport` answers the agent's chat completions and is closed at the end; `turns` is read then.
    Where it answers in this process, nothing is written as JSON and read again.
    `base_url` matters only to a transport that goes over the network.
    Raises only when the caller is cancelled: whatever goes wrong inside, a `CancelledError` of a
    tool or a grader included, is a failed episode with its error.
    """
    started = perf_counter()
    seat = None if config.gate is None else GateSeat(config.gate, id)
    refuse_missing_grades()
    keep_type_adapters()
    client, closing = _model_client(transport, base_url, timeout_s)
    try:
        async with closing:
            update = {"model_client": client, "seat": seat}
            agent = LabAgent(config.model_copy(update=update))
            async with waiting(
                f"the whole episode, of which HUD keeps the limit of {timeout_s:g} s"
            ):
                job = await task.run(agent, runtime=runtime, rollout_timeout=timeout_s)
    except asyncio.CancelledError:
        this = asyncio.current_task()
        if this is None or this.cancelling():
            raise
        seconds = perf_counter() - started
        return _cancelled_inside(task, turns(), id=id, group=group, seconds=seconds)
    run = _only_run(job)
    progressed()
    seconds = perf_counter() - started
    episode = _episode(run, task, turns(), id=id, group=group, seconds=seconds)
    return episode if seat is None else _at_the_gate(episode, seat)


def _model_client(
    transport: httpx.AsyncBaseTransport | InProcess, base_url: str, timeout_s: float
) -> tuple[ChatClient | AnswersClient, contextlib.AbstractAsyncContextManager[Any]]:
    """Who asks the model for the agent, and what is closed with the episode."""
    if isinstance(transport, InProcess):
        return AnswersClient(transport), contextlib.nullcontext()
    http = httpx.AsyncClient(
        transport=transport, base_url=base_url, trust_env=False, timeout=timeout_s
    )
    return ChatClient(http), http


def _at_the_gate(episode: Episode, seat: GateSeat) -> Episode:
    """The episode with what its gate decided, and without what was typed in secret."""
    episode = replace(episode, **seat.record())
    return replace(
        episode,
        actions=tuple(
            replace(
                action,
                arguments=redact(action.arguments, episode.secrets),
                text=redact(action.text, episode.secrets),
                thought=redact(action.thought, episode.secrets),
            )
            for action in episode.actions
        ),
    )


def _cancelled_inside(
    task: Task, turns: tuple[Turn, ...], *, id: str, group: str, seconds: float
) -> Episode:
    """Nobody cancelled the episode: something in it ended with a `CancelledError` of its own."""
    cause = "a tool, the screen or the grader was cancelled from within; the run was not"
    return Episode(
        id=id,
        group=group,
        task=task.slug,
        turns=turns,
        actions=(),
        screenshots=(),
        reward=None,
        status="failed",
        error=cause,
        seconds=seconds,
    )


def _only_run(job: Job) -> Run:
    (run,) = job.runs
    return run


def _episode(
    run: Run, task: Task, turns: tuple[Turn, ...], *, id: str, group: str, seconds: float
) -> Episode:
    error = _failure(run) or _unsampled(turns)
    return Episode(
        id=id,
        group=group,
        task=task.slug,
        turns=turns,
        actions=_actions(run),
        screenshots=_screenshots(run),
        reward=None if error else float(run.reward),
        status="failed" if error else _status(run),
        success=None if error else _success(run),
        info={} if error else dict(run.grade.info),
        error=error,
        seconds=seconds,
    )


def _failure(run: Run) -> str | None:
    """Why this run measures nothing, or `None`: HUD grades some failures with 0.0 all the same."""
    if run.trace.status in {"error", "cancelled"}:
        return run.trace.error or f"the run ended as {run.trace.status}"
    if run.grade.is_error:
        return f"not graded: {run.grade.content}"
    if not abs(run.reward) <= LARGEST_REWARD:
        return f"the grader's reward is {run.reward:g}; expected at most {LARGEST_REWARD:g} in size"
    success = run.grade.info.get("success")
    if success not in (None, True, False):
        return f"the grader's info has success {success!r}; expected true or false"
    return None


def _unsampled(turns: tuple[Turn, ...]) -> str | None:
    """An answer without a single token is no answer; nothing in it could have been graded."""
    empty = next((number for number, turn in enumerate(turns) if not turn.output_ids), None)
    return None if empty is None else f"turn {empty}: the server's answer has no token"


def _status(run: Run) -> Status:
    return "truncated" if run.trace.stop_reason in TRUNCATIONS else "completed"


def _success(run: Run) -> bool | None:
    success = run.grade.info.get("success")
    return None if success is None else bool(success)


def _actions(run: Run) -> tuple[Action, ...]:
    """Each model answer with the tool results that follow it."""
    from hud.agents.types import AgentStep, ToolStep

    answers: list[tuple[AgentStep, list[ToolStep], int]] = []
    shown = 0
    for step in run.trace.steps:
        if isinstance(step, AgentStep):
            answers.append((step, [], shown))
        elif isinstance(step, ToolStep) and answers:
            answers[-1][1].append(step)
        shown += len(_shown_by(step))
    return tuple(
        _action(answer, results, before - 1 if before else None)
        for answer, results, before in answers
    )


def _action(answer: AgentStep, results: list[ToolStep], saw: int | None) -> Action:
    calls = answer.tool_calls
    arguments = _sampled_arguments(calls[0].arguments) if calls else None
    finished = answer.done and arguments is not None  # `finish` ends before the tool is called
    errors = [r for r in results if r.result is None or r.result.isError]
    ran = bool(calls) and len(results) == len(calls)
    complete = ran and not errors
    refused = ran and bool(errors) and all(map(_refused, errors))
    shown = results[-1] if results else None
    text = "".join(_texts(shown)) if shown else answer.content or ""
    thought = without_surrogates(answer.content or "")
    text = without_surrogates(text)
    image = _last_image(shown)
    return Action(arguments, finished or complete, text, image, thought, refused, saw)


def _refused(step: ToolStep) -> bool:
    return bool(step.result and (step.result.meta or {}).get(REFUSED))


def _sampled_arguments(given: Any) -> dict[str, Any] | None:
    """What was sampled, unless it is no object or nested deeper than a file could be read again."""
    try:
        return cast("dict[str, Any]", _writable(given)) if isinstance(given, dict) else None
    except RecursionError:
        return None


def _writable(value: Any) -> Any:
    """Sampled arguments as any file can hold them: half of a surrogate pair, which JSON can spell
    and UTF-8 cannot, becomes its escape."""
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    return [_writable(item) for item in value] if isinstance(value, list) else value


def _texts(step: ToolStep) -> list[str]:
    content = step.result.content if step.result else []
    return [item.text for item in content if item.type == "text"]


def _last_image(step: ToolStep | None) -> bytes | None:
    """HUD shows the model only the last image of a result."""
    content = step.result.content if step and step.result else []
    images = [item.data for item in content if item.type == "image"]
    return read_base64(images[-1]) if images else None


def _screenshots(run: Run) -> tuple[bytes, ...]:
    """The first screenshot, which the agent records as a user's step, and one a tool result."""
    return tuple(image for step in run.trace.steps for image in _shown_by(step))


def _shown_by(step: Step) -> tuple[bytes, ...]:
    from hud.agents.types import ToolStep

    if isinstance(step, ToolStep):
        image = _last_image(step)
        return () if image is None else (image,)
    if step.source != "user":
        return ()
    contents = [message.content for message in step.messages or []]
    return tuple(read_base64(c.data) for c in contents if c.type == "image")


async def play_slots(
    plans: Sequence[P],
    play_one: Callable[[P, int], Awaitable[R]],
    *,
    concurrency: int,
    leave: Callable[[int], None] = lambda k: None,
) -> list[R]:
    """Play plans over `concurrency` slots: slot k plays plans k, k + concurrency, ... in turn.

    `play_one` is given a plan and the number of its slot; results stand in the order of the plans.

    Which slot plays what never depends on time, so the engine's rounds, and with them every token,
    are the same in each run. `leave(k)` tells the engine that slot k asks no more, also when its
    last episode failed: a round that waits for a dead slot would wait forever.
    """
    results: dict[int, R] = {}

    async def slot(k: int) -> None:
        try:
            for index in range(k, len(plans), concurrency):
                results[index] = await play_one(plans[index], k)
        finally:
            leave(k)

    async with asyncio.TaskGroup() as group:
        for k in range(min(concurrency, len(plans))):
            group.create_task(slot(k))
    return [results[index] for index in range(len(plans))]
