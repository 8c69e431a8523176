"""Many episodes at once against one engine, in an order that time cannot change.

    plans ──▶ slots ──▶ play (HUD, engine) ──▶ episodes, in the order of the plans

A `Plan` says what is played and with which seed. Invariant: the tokens of an episode depend on its
plan and the weights alone; which slot plays it, and with whom it shares a batch, moves no more than
the last bits of a log-probability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from cua_lab.play.ablation import OtherScreens, Screens
from cua_lab.play.episode import Episode, play, play_slots
from cua_lab.play.scripted import ScriptedPolicy, ScriptedTransport
from cua_lab.serving.in_process import EngineAnswers, InProcess
from cua_lab.serving.server import create_app
from cua_lab.serving.shim import ShimTransport
from cua_lab.serving.token_in import TokenIn, token_in_of
from cua_lab.waiting import labelled, telling

if TYPE_CHECKING:
    from hud.eval import Task

    from cua_lab.engine.engine import Engine
    from cua_lab.play.agent import LabAgentConfig

PATIENCE = 1 / 3
"""Of an episode's time limit: how long siblings wait for one that does not ask. With the usual
120 s that is 40 s, more than a browser takes to boot or a grader to grade; siblings keep 80 s."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One episode to be played."""

    task: Task
    id: str
    group: str
    """Plans of one group have equal tasks."""
    seed: int
    """Of the sampling; the start state's seed is among the task's arguments."""


@dataclass(slots=True)
class Worker:
    """Plays plans with a policy that an engine in this process serves, or with scripted players."""

    engine: Engine
    config: LabAgentConfig
    runtime: Any
    """A HUD runtime that places the tasks, such as `LocalRuntime(build)`."""
    concurrency: int = 32
    timeout_s: float = 120.0
    """Of one episode, grading included."""
    on_episode: Callable[[Episode], None] | None = None
    """Called as each episode ends: for a progress bar."""
    token_in: bool = False
    """Whether later turns send the ids on record (see `serving.token_in`)."""
    wire: bool = False
    """Whether answers take the form that a server's have, for tests of it: the same episodes, and
    2 ms more for each answer. Other screens and `token_in` need that form in any case."""
    _app: Any = field(init=False, repr=False)
    _token_requests: TokenIn | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._app = create_app(self.engine)
        self._token_requests = token_in_of(self.engine.policy) if self.token_in else None

    async def play(
        self, plans: Sequence[Plan], *, screens: Callable[[Plan], Screens] | None = None
    ) -> list[Episode]:
        """The policy plays; `screens` shows it other screenshots than the real ones."""
        slots = self.engine.open_slots(
            min(self.concurrency, len(plans)), limit_s=self.timeout_s * PATIENCE
        )

        async def play_one(plan: Plan, k: int) -> Episode:
            asked: EngineAnswers | ShimTransport
            transport: httpx.AsyncBaseTransport | InProcess
            if self.wire or self.token_in or screens:
                asked = self._shim(plan, slots[k])
                transport = OtherScreens(asked, screens(plan)) if screens else asked
            else:
                asked = transport = EngineAnswers(self.engine, slot=slots[k], seed=plan.seed)
            with labelled(f"slot {slots[k]}, episode {plan.id}"):
                return await self._one(plan, transport, lambda: tuple(asked.turns))

        with telling(self.engine.told):
            return await play_slots(
                plans,
                play_one,
                concurrency=len(slots),
                leave=lambda k: self.engine.close_slot(slots[k]),
            )

    def _shim(self, plan: Plan, slot: int) -> ShimTransport:
        policy = self.engine.policy
        return ShimTransport(
            httpx.ASGITransport(self._app),
            dialect="sglang",
            slot=slot,
            seed=plan.seed,
            vocab_size=policy.vocab_size,
            stop_ids=frozenset(policy.stop_ids),
            token_in=self._token_requests,
        )

    async def play_scripted(
        self, plans: Sequence[Plan], player: Callable[[Plan], ScriptedPolicy]
    ) -> list[Episode]:
        """A function plays instead of a model."""

        async def play_one(plan: Plan, _: int) -> Episode:
            with labelled(f"episode {plan.id}"):
                return await self._one(plan, ScriptedTransport(player(plan)), tuple)

        return await play_slots(plans, play_one, concurrency=self.concurrency)

    async def _one(
        self,
        plan: Plan,
        transport: httpx.AsyncBaseTransport | InProcess,
        turns: Callable[[], Any],
    ) -> Episode:
        episode = await play(
            plan.task,
            self.config,
            transport,
            runtime=self.runtime,
            id=plan.id,
            group=plan.group,
            timeout_s=self.timeout_s,
            turns=turns,
        )
        if self.on_episode is not None:
            self.on_episode(episode)
        return episode
