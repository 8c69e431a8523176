"""How long a step takes and what it costs: a small simulation of a rollout, then training.

    Workload + Speeds ──simulate_rollout──▶ seconds, where they went ──plan──▶ Plan

An episode is `turns` times: the engine reads what is new in the prompt and writes an answer, then
the env acts and shows a frame. At most `sandboxes` episodes play at once; each engine answers those
that wait in one batch of up to `max_batch`. With a prefix cache the new tokens of turn k are
n_1 = prompt + frame and n_k = scaffold + frame for k > 1; a batch of b requests with n new tokens
in all and answers of at most m tokens takes

    t = n / prefill_tokens_s + m (decode_step_s + b decode_token_s)

and then each request spends `env_s` in its sandbox. An episode holds its sandbox for `boot_s` more.
Without queues T = boot + turns (t + env_s) for each wave of episodes; the simulation adds what
waiting does. Training a step takes

    T_train = tokens / train_tokens_s / gpus + GiB of pixels x transfer_min_per_gib x 60

and a step T_rollout + T_train: engine and trainer share the GPUs. Cost = gpus T_step gpu_hour +
(sandbox seconds) sandbox_hour, both over 3600.

Invariant: equal arguments give equal results, to the bit; nothing here reads a clock.
"""

from __future__ import annotations

import heapq
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

    def batch_s(self, new_tokens: int, requests: int, answer: int) -> float:
        """One batch of an engine."""
        decode = answer * (self.decode_step_s + requests * self.decode_token_s)
        return new_tokens / self.prefill_tokens_s + decode


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
    left = work.episodes
    asks: list[tuple[float, int, int]] = []  # (when, sandbox, turn)
    for sandbox in range(min(sandboxes, left)):
        heapq.heappush(asks, (speeds.boot_s, sandbox, 0))
        left -= 1
    free, busy, end = [0.0] * engines, 0.0, 0.0
    waiting: list[list[tuple[float, int, int]]] = [[] for _ in range(engines)]
    held = 0.0
    started = dict.fromkeys(range(min(sandboxes, work.episodes)), 0.0)
    while asks or any(waiting):
        engine = _next_engine(asks, waiting, free)
        when = max(free[engine], waiting[engine][0][0]) if waiting[engine] else None
        if asks and (when is None or asks[0][0] <= when):
            ask = heapq.heappop(asks)
            waiting[ask[1] % engines].append(ask)
            continue
        assert when is not None
        batch = waiting[engine][: speeds.max_batch]
        waiting[engine] = waiting[engine][speeds.max_batch :]
        new = sum(work.new_tokens(turn) for _, _, turn in batch)
        took = speeds.batch_s(new, len(batch), work.answer_tokens)
        busy += took
        free[engine] = when + took
        for _, sandbox, turn in batch:
            done = when + took + speeds.env_s
            if turn + 1 < work.turns:
                heapq.heappush(asks, (done, sandbox, turn + 1))
                continue
            held, end = held + done - started[sandbox], max(end, done)
            if left:
                left -= 1
                started[sandbox] = done
                heapq.heappush(asks, (done + speeds.boot_s, sandbox, 0))
    return Rollout(end, busy / (engines * end), held)


def _next_engine(
    asks: list[tuple[float, int, int]],
    waiting: list[list[tuple[float, int, int]]],
    free: list[float],
) -> int:
    """The engine that can begin a batch first; the first one where none has anything to do."""
    ready = [
        (max(free[engine], queue[0][0]), engine) for engine, queue in enumerate(waiting) if queue
    ]
    return min(ready)[1] if ready else 0


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
