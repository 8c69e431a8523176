"""The bench's part about many episodes against the embedded engine, and about long ones.

The laptop's network answers every turn with `ANSWER` tokens, after which a script acts: an
untrained policy says no call, and the script makes every episode as long as it should be. Caches
are empty at the start of each way, as they are after a push of weights. Invariant: each request,
prompt, screenshot and token is the engine's own, and no policy has to be trained first.
"""

from __future__ import annotations

from functools import partial

from cua_lab.bench.machine_limits import Limits
from cua_lab.bench.pairs import Measured, Way, growing, interleaved, pairs_of
from cua_lab.engine.engine import Engine
from cua_lab.errors import LabError
from cua_lab.play.episode import Episode, play, play_slots
from cua_lab.play.scripted import ScriptedTransport, in_turn
from cua_lab.play.worker import Plan
from cua_lab.recipes import load_recipe
from cua_lab.run.stage_context import StageContext, build_stage, demonstrator_of, new_policy
from cua_lab.serving.in_process import EngineAnswers, InProcess
from cua_lab.serving.wire import Body

ANSWER = 12
"""Tokens a turn: what the laptop's trained policy says for a click."""
AT_ONCE, TURNS, EPISODES = 64, (2, 4, 8, 16), (8, 16, 32, 64)
TOGETHER = 16
"""Episodes at once while turns grow."""
STAGE = "click"


async def rollout(rounds: int, top: Limits) -> Measured:
    """At most three rounds: one at a time, `AT_ONCE` episodes take seconds of CPU time."""
    recipe = load_recipe("laptop", [f"stages.{STAGE}.agent.max_tokens={ANSWER}"])
    context = build_stage(recipe, recipe.stage(STAGE))
    engine = Engine(new_policy(context, demonstrator_of(context)), max_batch=AT_ONCE)
    try:
        plans = context.fresh_plans("bench", AT_ONCE)
        ways: dict[str, Way] = {
            f"{AT_ONCE} at once": partial(_play, context, engine, plans, 1, AT_ONCE),
            "one at a time": partial(_play, context, engine, plans, 1, 1),
        }
        rounds = min(rounds, 3)
        pairs = pairs_of(
            "rollout",
            f"{AT_ONCE} episodes of one turn, {ANSWER} tokens each",
            await interleaved(ways, rounds=rounds),
            why="a batch shares the reading of weights and torch's calls; what HUD, the desktop and"
            " the wire do for an episode is the same for each",
        )
        few = plans[:TOGETHER]
        sizes: dict[int, Way] = {
            n: partial(_play, context, engine, few, n, TOGETHER) for n in TURNS
        }
        counts: dict[int, Way] = {
            n: partial(_play, context, engine, plans[:n], 1, AT_ONCE) for n in EPISODES
        }
        growths = [
            await growing("rollout", "turns", sizes, rounds=rounds),
            await growing("rollout", "episodes", counts, rounds=rounds),
        ]
        return Measured(pairs, growths)
    finally:
        engine.close()


async def _play(
    context: StageContext, engine: Engine, plans: list[Plan], turns: int, concurrency: int
) -> list[Episode]:
    """Episodes of so many turns; a `LabError` where one is shorter or has failed."""
    engine.flush_cache()
    slots = engine.open_slots(min(concurrency, len(plans)))
    config = context.config.model_copy(update={"max_steps": turns, "stop_on": set()})
    calls = [{"action": "click", "x": 1, "y": 1}] * turns

    async def play_one(plan: Plan, k: int) -> Episode:
        asked = EngineAnswers(engine, slot=slots[k], seed=plan.seed)
        task = plan.task.model_copy(update={"args": {**plan.task.args, "turns": turns}})
        return await play(
            task,
            config,
            _Led(asked, ScriptedTransport(in_turn(calls))),
            runtime=context.runtime,
            id=plan.id,
            group=plan.group,
            turns=lambda: tuple(asked.turns),
        )

    played = await play_slots(
        plans, play_one, concurrency=len(slots), leave=lambda k: engine.close_slot(slots[k])
    )
    if short := [e for e in played if len(e.turns) != turns or e.reward is None]:
        raise LabError(f"the bench's own episode had {len(short[0].turns)} turns: {short[0].error}")
    return played


class _Led(InProcess):
    """The policy is asked, and a script acts."""

    def __init__(self, asked: InProcess, script: InProcess) -> None:
        self.asked, self.script = asked, script

    async def answer(self, body: Body) -> Body:
        await self.asked.answer(body)
        return await self.script.answer(body)
