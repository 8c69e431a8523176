"""How long a step takes and what it costs: a small simulation of a rollout, then training.

    Workload + Speeds ──simulate_rollout──▶ seconds, where they went ──plan──▶ Plan

An episode is `turns` times: the engine reads what is new in the prompt and writes an answer, then
the env acts and shows a frame. At most `sandboxes` episodes play at once; each engine answers those
that wait in one batch of up to `max_batch`. With a prefix cache the new tokens of turn k are
n_1 = prompt + frame and n_k = scaffold + frame for k > 1; a batch of b requests with n new tokens
in all and answers of at most m tokens takes

    t = batch_s + n / prefill_tokens_s + m (decode_step_s + b decode_token_s)

and then each request takes `host_s` of the machine that drives the screens, one after another, and
spends `env_s` in its sandbox. An episode holds its sandbox for `boot_s` more. With `rounds` an
engine waits for all of its sandboxes, as the embedded one does. Without queues
T = boot + turns (t + host_s + env_s) for each wave of episodes; the simulation adds what waiting
does. Training a step takes

    T_train = tokens / train_tokens_s / gpus + GiB of pixels x transfer_min_per_gib x 60

and a step T_rollout + T_train: engine and trainer share the GPUs. Cost = gpus T_step gpu_hour +
(sandbox seconds) sandbox_hour, both over 3600.

Invariant: equal arguments give equal results, to the bit; nothing here reads a clock.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from cua_lab.errors import LabError
from cua_lab.miles.cost import SCAFFOLD_TOKENS, costs_of
from cua_lab.miles.recipe import MilesRecipe


@dataclass(frozen=True, slots=True)
class Workload:
    """One step's episodes."""

    episodes: int
    turns: int
    prompt_tokens: int
    """System prompt, tool and task."""
    frame_tokens: int
    scaffold_tokens: int
    """Between two turns."""
    answer_tokens: int
    frame_gib: float = 0.0
    """Pixels of one frame as the trainer gets them."""
    computed: float = 1.0
    """Share of the new tokens that engines compute: members of a group begin alike."""

    def __post_init__(self) -> None:
        for name in ("episodes", "turns", "answer_tokens"):
            if getattr(self, name) < 1:
                raise LabError(f"{name} must be at least 1; got {getattr(self, name)}")

    def new_tokens(self, turn: int) -> int:
        """What the engine has not read before turn `turn`, from 0."""
        return (self.scaffold_tokens if turn else self.prompt_tokens) + self.frame_tokens

    @property
    def tokens(self) -> int:
        """Of an episode, as it is trained."""
        return sum(self.new_tokens(turn) + self.answer_tokens for turn in range(self.turns))


@dataclass(frozen=True, slots=True)
class Speeds:
    """What one machine does; measured, or assumed and said to be."""

    prefill_tokens_s: float
    """Of one engine."""
    decode_step_s: float
    """Of one token for a batch, whatever its size."""
    decode_token_s: float
    """And for each of its requests."""
    env_s: float
    """Action to screenshot."""
    boot_s: float = 0.0
    """Of a sandbox."""
    max_batch: int = 64
    train_tokens_s: float = float("inf")
    """Forward and backward, of one GPU."""
    transfer_min_per_gib: float = 0.0
    batch_s: float = 0.0
    """Of a batch, whatever is in it."""
    host_s: float = 0.0
    """A turn's work on the one machine that drives all screens, such as the lab's own process."""
    rounds: bool = False
    """Whether an engine answers only when all of its sandboxes have asked."""

    def answered_s(self, new_tokens: float, requests: int, answer: int) -> float:
        """One batch of an engine."""
        decode = answer * (self.decode_step_s + requests * self.decode_token_s)
        return self.batch_s + new_tokens / self.prefill_tokens_s + decode


H200 = Speeds(
    prefill_tokens_s=20_000,
    decode_step_s=0.008,
    decode_token_s=0.0001,
    env_s=1.0,
    boot_s=60.0,
    train_tokens_s=2_500,
    transfer_min_per_gib=5.0,
)
"""Assumed for a 4 B model on one H200, not measured here: a browser in the cloud takes a second a
turn; the trainer reads activations again (gradient checkpointing); the pixels' 5 minutes a GiB are
the published run's."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """What the simulation saw."""

    seconds: float
    engine_busy: float
    """Share of the engines' time in which they worked."""
    sandbox_s: float
    """Sandbox seconds in all."""


def workload_of(recipe: MilesRecipe, *, episodes: int | None = None) -> Workload:
    """A recipe's step, by the arithmetic of `cost.py`."""
    costs = costs_of(recipe)
    return Workload(
        episodes=episodes or recipe.train.episodes,
        turns=recipe.agent.max_turns,
        prompt_tokens=costs.prompt_tokens,
        frame_tokens=costs.frame_tokens,
        scaffold_tokens=SCAFFOLD_TOKENS,
        answer_tokens=recipe.context.typical_answer,
        frame_gib=costs.frame_bytes / 2**30,
    )


def simulate_rollout(work: Workload, speeds: Speeds, *, sandboxes: int, engines: int) -> Rollout:
    """Play a step's episodes; each sandbox asks the engine that it was given, in turn."""
    if sandboxes < 1 or engines < 1:
        raise LabError(f"got {sandboxes} sandboxes and {engines} engines; expected at least 1 each")
    state = _Simulation(work, speeds, sandboxes, engines)
    while (turn := state.next_batch()) is not None:
        state.answer(*turn)
    return Rollout(state.end, state.busy / (engines * state.end), state.held)


Ask = tuple[float, int, int]
"""When, by which sandbox, in which turn of its episode."""


class _Simulation:
    """Asks on their way to engines, and engines that answer them in the order of time."""

    def __init__(self, work: Workload, speeds: Speeds, sandboxes: int, engines: int) -> None:
        self.work, self.speeds = work, speeds
        first = min(sandboxes, work.episodes)
        self.left = work.episodes - first
        self.asks: list[Ask] = [(speeds.boot_s, sandbox, 0) for sandbox in range(first)]
        self.coming = [len(range(engine, first, engines)) for engine in range(engines)]
        """Of each engine: asks that are not with it yet."""
        self.waiting: list[list[Ask]] = [[] for _ in range(engines)]
        self.free = [0.0] * engines
        self.started = dict.fromkeys(range(first), 0.0)
        self.host = self.busy = self.end = self.held = 0.0

    def next_batch(self) -> tuple[int, float] | None:
        """The engine that can begin first, and when; `None` when all has been played."""
        while True:
            ready = min(map(self._ready, range(len(self.free))))
            when, engine = ready
            if self.asks and self.asks[0][0] <= when:
                ask = heapq.heappop(self.asks)
                self.waiting[ask[1] % len(self.free)].append(ask)
                self.coming[ask[1] % len(self.free)] -= 1
            else:
                return None if when == math.inf else (engine, when)

    def _ready(self, engine: int) -> tuple[float, int]:
        queue, rounds = self.waiting[engine], self.speeds.rounds
        if not queue or (rounds and self.coming[engine]):
            return math.inf, engine
        return max(self.free[engine], queue[-1 if rounds else 0][0]), engine

    def answer(self, engine: int, when: float) -> None:
        """One batch, or with rounds as many as all that wait need; then the sandboxes go on."""
        queue, most = self.waiting[engine], self.speeds.max_batch
        count = len(queue) if self.speeds.rounds else min(most, len(queue))
        batch, self.waiting[engine] = queue[:count], queue[count:]
        took = sum(self._batch_s(batch[at : at + most]) for at in range(0, count, most))
        self.busy += took
        self.free[engine] = when + took
        for _, sandbox, turn in batch:
            self._go_on(sandbox, turn, when + took)

    def _batch_s(self, batch: list[Ask]) -> float:
        new = self.work.computed * sum(self.work.new_tokens(turn) for _, _, turn in batch)
        return self.speeds.answered_s(new, len(batch), self.work.answer_tokens)

    def _go_on(self, sandbox: int, turn: int, answered: float) -> None:
        """The sandbox acts; then it asks again, starts its next episode, or is given back."""
        if self.speeds.host_s:
            answered = self.host = max(self.host, answered) + self.speeds.host_s
        done = answered + self.speeds.env_s
        if turn + 1 < self.work.turns:
            self._ask(done, sandbox, turn + 1)
            return
        self.held += done - self.started[sandbox]
        self.end = max(self.end, done)
        if self.left:
            self.left -= 1
            self.started[sandbox] = done
            self._ask(done + self.speeds.boot_s, sandbox, 0)

    def _ask(self, when: float, sandbox: int, turn: int) -> None:
        heapq.heappush(self.asks, (when, sandbox, turn))
        self.coming[sandbox % len(self.free)] += 1


@dataclass(frozen=True, slots=True)
class Plan:
    """A step, as planned."""

    rollout: Rollout
    train_s: float
    transfer_s: float
    cost: float
    """In the currency of the prices."""
    bottleneck: str

    @property
    def step_s(self) -> float:
        return self.rollout.seconds + self.train_s + self.transfer_s


def plan(
    work: Workload,
    speeds: Speeds,
    *,
    sandboxes: int,
    gpus: int,
    gpu_hour: float = 0.0,
    sandbox_hour: float = 0.0,
) -> Plan:
    """A step on `gpus` GPUs, each with an engine and a share of the trainer."""
    rollout = simulate_rollout(work, speeds, sandboxes=sandboxes, engines=gpus)
    train = work.episodes * work.tokens / speeds.train_tokens_s / gpus
    gib = work.episodes * work.turns * work.frame_gib
    transfer = gib * speeds.transfer_min_per_gib * 60
    step = rollout.seconds + train + transfer
    cost = (gpus * step * gpu_hour + rollout.sandbox_s * sandbox_hour) / 3600
    parts = {
        "pixels to the trainer": transfer,
        "training": train,
        "engines": rollout.seconds * rollout.engine_busy,
        "sandboxes (boot, latency, waves)": rollout.seconds * (1 - rollout.engine_busy),
    }
    return Plan(rollout, train, transfer, cost, max(parts, key=lambda name: parts[name]))
