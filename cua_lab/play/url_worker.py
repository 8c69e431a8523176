"""Episodes against a server outside the process: a `Worker` over a URL.

The server knows neither rounds nor the policy's forbidden ids, so they go with every request; seeds
go along too, and equal ones give equal tokens where the server honours them (vLLM does, sglang does
not by itself). Invariant: every turn that says its weights was sampled under the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from cua_lab.errors import LabError
from cua_lab.play.ablation import OtherScreens, Screens
from cua_lab.play.episode import Episode, play, play_slots
from cua_lab.play.scripted import ScriptedPolicy, ScriptedTransport
from cua_lab.play.worker import Plan
from cua_lab.serving.loopback import open_transport
from cua_lab.serving.outside import OutsideEngine
from cua_lab.serving.retrying import RetryTransport
from cua_lab.serving.shim import ShimTransport
from cua_lab.serving.token_in import TokenIn, token_in_of
from cua_lab.waiting import labelled

if TYPE_CHECKING:
    from cua_lab.play.agent import LabAgentConfig


@dataclass(slots=True)
class UrlWorker:
    """Plays plans with a policy that a server of vLLM or sglang samples."""

    engine: OutsideEngine
    config: LabAgentConfig
    runtime: Any
    """A HUD runtime that places the tasks, such as `LocalRuntime(build)`."""
    concurrency: int = 32
    timeout_s: float = 120.0
    """Of one episode, grading included."""
    on_episode: Callable[[Episode], None] | None = None
    retries: int = 3
    """Of a request that brought no answer."""
    token_in: bool = False
    """Whether later turns send the ids on record; sglang only."""
    _token_requests: TokenIn | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.token_in and self.engine.dialect == "vllm":
            raise LabError(
                "agent.token_in needs an engine that continues from ids: embedded or"
                " sglang; vLLM's chat ignores them"
            )
        self._token_requests = token_in_of(self.engine.policy) if self.token_in else None
        self.config = self.config.model_copy(update={"model": self.engine.name})

    async def play(
        self, plans: Sequence[Plan], *, screens: Callable[[Plan], Screens] | None = None
    ) -> list[Episode]:
        """The policy plays; episodes that a dead server cost are played again on a new one."""
        episodes = await self._play_all(plans, screens)
        lost = [index for index, episode in enumerate(episodes) if episode.status == "failed"]
        if lost and self.engine.revive():
            again = await self._play_all([plans[index] for index in lost], screens)
            for index, episode in zip(lost, again, strict=True):
                episodes[index] = episode
        self._check_played(episodes)
        return episodes

    async def play_scripted(
        self, plans: Sequence[Plan], player: Callable[[Plan], ScriptedPolicy]
    ) -> list[Episode]:
        """A function plays instead of a model."""
        return await play_slots(
            plans,
            lambda plan, _: self._one(plan, ScriptedTransport(player(plan)), tuple),
            concurrency=self.concurrency,
        )

    async def _play_all(
        self, plans: Sequence[Plan], screens: Callable[[Plan], Screens] | None
    ) -> list[Episode]:
        async def play_one(plan: Plan, k: int) -> Episode:
            shim = self._shim(plan)
            transport = OtherScreens(shim, screens(plan)) if screens else shim
            with labelled(f"slot {k}, episode {plan.id}"):
                return await self._one(plan, transport, lambda: tuple(shim.turns))

        return await play_slots(plans, play_one, concurrency=self.concurrency)

    def _shim(self, plan: Plan) -> ShimTransport:
        policy = self.engine.policy
        return ShimTransport(
            RetryTransport(open_transport(self.engine.url), self.retries),
            dialect=self.engine.dialect,
            seed=plan.seed,
            vocab_size=policy.vocab_size,
            stop_ids=frozenset(policy.stop_ids),
            forbidden_ids=policy.forbidden_ids,
            token_in=self._token_requests,
        )

    async def _one(
        self, plan: Plan, transport: httpx.AsyncBaseTransport, turns: Callable[[], Any]
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
            base_url=f"{self.engine.url}/v1/",
        )
        if self.on_episode is not None:
            self.on_episode(episode)
        return episode

    def _check_played(self, episodes: Sequence[Episode]) -> None:
        """Refuse a round that measures the server instead of the policy."""
        failed = [episode for episode in episodes if episode.status == "failed"]
        if episodes and len(failed) == len(episodes):
            raise LabError(
                f"all {len(failed)} episodes against {self.engine.url} failed; the first:"
                f" {failed[0].error}"
            )
        wanted = self.engine.weight_version
        for episode in episodes:
            for number, turn in enumerate(episode.turns, 1):
                if turn.weight_version not in (None, wanted):
                    raise LabError(
                        f"{self.engine.url} sampled turn {number} of episode {episode.id!r} under"
                        f" the weights {turn.weight_version!r}, but {wanted!r} were pushed: does"
                        " somebody else push to it?"
                    )
