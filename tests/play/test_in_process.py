"""The two ways of an answer, over HTTP's form and within the process, give the same episodes."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from hud.eval import LocalRuntime, Task

from cua_lab.computer.config import ToolConfig
from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import Generation, GenerationRequest
from cua_lab.envs.lab.env import build
from cua_lab.play.agent import LabAgentConfig
from cua_lab.play.episode import Episode
from cua_lab.play.episode_samples import episode_samples
from cua_lab.play.worker import Plan, Worker
from cua_lab.policy.policy import Policy
from cua_lab.policy.spelling import encode_text
from cua_lab.serving.sampling_request import sampling_request
from cua_lab.stitching.codec import codec_from_tokenizer
from tests.serving.conftest import corpus, qwen25_checkpoint, tiny  # noqa: F401  (fixtures)


def call(**arguments: Any) -> str:
    said = json.dumps({"name": "computer", "arguments": arguments})
    return f"<tool_call>\n{said}\n</tool_call>"


SAID = (
    "I click. " + call(action="click", x=40, y=60),
    call(action="press", keys=["left", "up"]),
    call(action="click", x=4000, y=60),
    call(action="press", keys=["\ud83d"]).replace("\\ud83d", "\\\\ud83d"),
    call(action="finish"),
    "<tool_call>\n{no json}\n</tool_call>",
    call(action="move", x=1, y=1) + "\n" + call(action="press", keys=["down"]),
    "only words",
)


class Speaking(Engine):
    """The engine's own prompts, seeds and numbers; every second answer spells one of `SAID`."""

    async def complete(self, request: GenerationRequest) -> Generation:
        generation = await super().complete(request)
        (choice,) = generation.choices
        if choice.seed % 2:
            return generation
        ids = encode_text(self.policy.tokenizer, SAID[choice.seed // 2 % len(SAID)])
        ids = (*ids, self.policy.stop_ids[0])
        logprobs = tuple(-1 / (3 + choice.seed % 97 + i) for i in range(len(ids)))
        spoken = replace(
            choice, ids=ids, logprobs=logprobs, tops=(), finish="stop", matched=ids[-1]
        )
        return replace(generation, choices=(spoken,))


def played(policy: Policy, *, wire: bool, context: int | None = None, **sampling: Any) -> Any:
    tasks = [
        Task(env="lab", id=id, args={"seed": seed, "turns": 2, "width": 96, "height": 96}, slug=id)
        for id in ("targets-click", "2048-score")
        for seed in range(2)
    ]
    plans = [
        Plan(task, id=f"{task.slug}-{member}", group=task.slug, seed=1000 * index + member)
        for index, task in enumerate(tasks)
        for member in range(2)
    ]
    asked = {"temperature": 1.0, "max_tokens": 24, "token_ids": True} | sampling
    config = LabAgentConfig(
        system_prompt="Act.",
        tool=ToolConfig(pace_ms=0, actions=("click", "move", "press", "finish")),
        stop_on={"length"},
        completion_kwargs=sampling_request(**asked),
    )
    engine = Speaking(policy, context_length=context)
    try:
        worker = Worker(engine, config, LocalRuntime(build), concurrency=4, wire=wire)
        return asyncio.run(worker.play(plans))
    finally:
        engine.close()


@pytest.fixture(scope="module")
def both(tiny: Policy) -> list[tuple[Episode, Episode]]:  # noqa: F811
    ways = (played(tiny, wire=wire) for wire in (True, False))
    return list(zip(*ways, strict=True))


def test_every_field_of_an_episode_is_the_same(both: list[tuple[Episode, Episode]]) -> None:
    for wired, direct in both:
        assert replace(direct, seconds=0) == replace(wired, seconds=0)
    turns = [turn for episode, _ in both for turn in episode.turns]
    assert {turn.finish_reason for turn in turns} == {"length", "stop", "tool_calls"}
    assert {turn.truncated for turn in turns} == {True, False}
    assert all(turn.images for turn in turns)
    assert {action.valid for episode, _ in both for action in episode.actions} == {True, False}
    assert max(len(episode.turns) for episode, _ in both) == 2


def test_ids_masks_and_log_probabilities_of_the_training_samples_are_the_same(
    both: list[tuple[Episode, Episode]],
    tiny: Policy,  # noqa: F811
) -> None:
    for wired, direct in both:
        ours, theirs = (
            episode_samples(one, codec_from_tokenizer(tiny.tokenizer), tiny.vision)
            for one in (direct, wired)
        )
        assert len(ours) == len(theirs) > 0
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.stitched == other.stitched
            assert (mine.reward, mine.status) == (other.reward, other.status)


def test_a_request_that_the_engine_refuses_fails_in_the_same_words(tiny: Policy) -> None:  # noqa: F811
    wired, direct = (played(tiny, wire=wire, context=64) for wire in (True, False))
    errors = {episode.error for episode in direct}
    assert errors == {episode.error for episode in wired}
    assert all("status 400" in error and "context length" in error for error in errors)


def test_an_answer_without_ids_is_played_and_leaves_no_turn(tiny: Policy) -> None:  # noqa: F811
    for wire in (True, False):
        episodes = played(tiny, wire=wire, token_ids=False, temperature=0.0)
        assert {episode.status for episode in episodes} <= {"completed", "truncated"}
        assert not any(episode.turns for episode in episodes)
