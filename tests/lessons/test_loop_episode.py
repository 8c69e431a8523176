"""The loop to read and an episode through HUD, RFB, the agent and the engine: the same ids."""

import asyncio

import pytest
from hud.eval import LocalRuntime, Task

from cua_lab.computer.config import ToolConfig
from cua_lab.desktop.apps import Game2048, Targets
from cua_lab.engine.engine import Engine
from cua_lab.envs.lab.env import build
from cua_lab.envs.lab.grading import click_distance
from cua_lab.lessons.loops import episode as loop
from cua_lab.lessons.loops.click_task import SIDE, TOOL
from cua_lab.lessons.loops.decode import Answer
from cua_lab.lessons.loops.episode import Episode, play
from cua_lab.play.agent import LabAgentConfig
from cua_lab.play.episode import Episode as RealEpisode
from cua_lab.play.worker import Plan, Worker
from cua_lab.policy.policy import Policy
from cua_lab.policy.template import encode
from tests.support_calls import call_text

SEEDS = (3, 4, 5)


def ours(policy: Policy, seed: int, turns: int) -> tuple[Episode, float]:
    app = Targets(1, width=SIDE, height=SIDE, distractors=(0, 0), seed=seed)
    episode = play(policy, app, app.instruction, TOOL, turns=turns, max_tokens=32, seed=100 + seed)
    return episode, click_distance(app.state(), app.size).reward


def theirs(policy: Policy, turns: int) -> list[RealEpisode]:
    args = {"level": 1, "buttons": 1, "reward": "distance", "width": SIDE, "height": SIDE}
    config = LabAgentConfig(
        model="policy",
        system_prompt=None,
        tool=TOOL,
        max_steps=turns,
        stop_on={"length", "malformed_tool_call"},
        completion_kwargs={
            "max_tokens": 32,
            "temperature": 1.0,
            "extra_body": {"return_token_ids": True},
        },
    )
    plans = [
        Plan(
            Task(env="lab", id="targets-click", args={**args, "seed": seed, "turns": turns}),
            id=str(seed),
            group="g",
            seed=100 + seed,
        )
        for seed in SEEDS
    ]
    engine = Engine(policy)
    try:
        worker = Worker(engine, config, LocalRuntime(build), concurrency=1)
        return asyncio.run(worker.play(plans))
    finally:
        engine.close()


@pytest.mark.parametrize("turns", [1, 3])
def test_ids_log_probabilities_and_rewards_are_those_of_the_real_one(
    warm: Policy, turns: int
) -> None:
    lengths = []
    for seed, real in zip(SEEDS, theirs(warm, turns), strict=True):
        assert real.error is None
        episode, reward = ours(warm, seed, turns)
        assert [turn.prompt_ids for turn in episode.turns] == [t.prompt_ids for t in real.turns]
        assert [turn.output_ids for turn in episode.turns] == [t.output_ids for t in real.turns]
        for turn, other in zip(episode.turns, real.turns, strict=True):
            assert turn.output_logprobs == pytest.approx(other.output_logprobs, abs=1e-4)
        assert reward == pytest.approx(real.reward)
        assert len(episode.calls) == sum(action.valid for action in real.actions)
        lengths.append(len(episode.turns))
    assert max(lengths) >= min(turns, 2)  # one click is all that the policy was shown


def test_keys_reach_the_app_and_a_wrong_call_ends_the_episode(
    warm: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"action": "press", "keys": ["left", "up", "left"]}
    script = [call_text("computer", call) for call in (keys, {"action": "fly"}, keys)]

    def scripted(policy: Policy, prompt: object, **options: object) -> Answer:
        ids = tuple(encode(policy.tokenizer, script.pop(0) + "<|im_end|>"))
        return Answer(ids, (-1.0,) * len(ids))

    monkeypatch.setattr(loop, "decode", scripted)
    app, other = Game2048(SIDE, SIDE, seed=1), Game2048(SIDE, SIDE, seed=1)
    tool = ToolConfig(actions=("press",))
    episode = play(warm, app, "Play.", tool, turns=3, max_tokens=32, seed=0)
    for direction in ("left", "up", "left"):
        other.push(direction)
    assert app.state() == other.state()
    assert [call.action for call in episode.calls] == ["press"]
    assert len(episode.turns) == 2
