"""The lab's env through HUD: seeded starts, rewards from the state, tasks that end."""

import asyncio
from typing import Any

import pytest
from hud.eval import LocalRuntime, Run, Task
from hud.eval.run import rollout

from cua_lab.computer.config import ToolConfig
from cua_lab.desktop.apps import Targets, Todo, boards2048, rules2048
from cua_lab.desktop.apps.transcripts import board_transcript
from cua_lab.envs.lab.env import LabEnvironment, build
from cua_lab.envs.lab.tasks import tasks
from cua_lab.play.agent import LabAgent, LabAgentConfig
from cua_lab.play.scripted import Messages, ScriptedTransport

FINISH = {"action": "finish"}
KEYS = {"action": "press", "keys": ["left", "down", "right", "up"] * 5}


def play(id: str, *calls: dict[str, Any], env: Any = build, **args: Any) -> Run:
    """One episode of a template, played by a list of calls (and `finish` after them)."""

    def player(messages: Messages) -> dict[str, Any]:
        turn = sum(message["role"] == "assistant" for message in messages)
        return calls[turn] if turn < len(calls) else FINISH

    return asyncio.run(_play(Task(env="lab", id=id, args=args), player, env))


async def _play(task: Task, player: Any, env: Any) -> Run:
    import httpx
    from openai import AsyncOpenAI

    http = httpx.AsyncClient(transport=ScriptedTransport(player))
    client = AsyncOpenAI(api_key="none", base_url="http://engine/v1", http_client=http)
    config = LabAgentConfig(model_client=client, tool=ToolConfig(pace_ms=0), max_steps=20)
    async with asyncio.timeout(30):
        return await rollout(task, LabAgent(config), runtime=LocalRuntime(env))


def first_image(run: Run) -> str:
    return [step for step in run.trace.steps if step.source == "user"][-1].messages[0].content.data


def test_a_score_is_rewarded_in_proportion() -> None:
    run = play("2048-score", KEYS, KEYS, seed=1, target=1000, turns=2)
    score = run.grade.info["state"]["score"]
    assert score > 100
    assert run.reward == score / 1000
    assert play("2048-score", KEYS, KEYS, seed=1, target=10, turns=2).grade.info["success"]


def test_the_answer_of_the_policy_does_not_move_the_reward() -> None:
    run = play("2048-score", {"action": "finish", "text": "score 99999, reward 1.0"})
    assert run.trace.content == "score 99999, reward 1.0"
    assert run.reward == 0.0


def test_a_tile_is_all_or_nothing() -> None:
    assert play("2048-reach-tile", KEYS, KEYS, tile=16).reward == 1.0
    assert play("2048-reach-tile", KEYS, KEYS, tile=1024).reward == 0.0


def test_near_a_win_the_two_right_keys_win_and_what_there_is_to_read_is_told() -> None:
    right = boards2048.winning_keys(boards2048.near_win(64, 2, 5), 64, 2)
    turns = [{"action": "press", "keys": [key]} for key in right[0]]
    run = play("2048-near-win", *turns, seed=5)
    assert run.reward == 1.0
    assert run.grade.info["readings"][0] == board_transcript(boards2048.near_win(64, 2, 5))
    assert len(run.grade.info["readings"]) == 3
    assert play("2048-near-win", seed=5).reward == 0.0


def test_more_keys_than_merges_win_nothing() -> None:
    """Blind players pressed all keys in turn: a tile that took 20 keys is no near win."""
    rewards = {play("2048-near-win", KEYS, seed=seed).reward for seed in range(4)}
    assert rewards == {0.0}


def test_a_merge_is_worth_its_part_of_the_best_one_and_more_keys_are_worth_nothing() -> None:
    board = boards2048.mid_game(5)
    gains = {key: rules2048.move(board, key)[1] for key in ("left", "up")}
    best = max(gains.values())
    for key, gain in gains.items():
        run = play("2048-best-merge", {"action": "press", "keys": [key]}, seed=5)
        assert run.reward == gain / best
        assert run.grade.info["success"] == (gain == best)
    assert play("2048-best-merge", KEYS, seed=5).reward == 0.0
    assert play("2048-best-merge", seed=5).reward == 0.0


def test_the_button_is_clicked_or_missed_by_some_distance() -> None:
    app = Targets(1, seed=4)
    x, y = app.target.box.center
    assert play("targets-click", {"action": "click", "x": x, "y": y}, seed=4).reward == 1.0
    outside = {"action": "click", "x": app.target.box.left - 2, "y": y}
    assert play("targets-click", outside, seed=4).reward == 0.0
    near = play("targets-click", outside, seed=4, reward="distance")
    assert 0.4 < near.reward < 0.5
    assert near.grade.info["success"] is False


def test_the_number_of_buttons_is_an_argument() -> None:
    run = play("targets-click", level=2, buttons=4, seed=2)
    assert len(run.grade.info["state"]["boxes"]) == 4
    assert "Click the" in run.prompt_text


def test_a_task_of_one_turn_ends_after_it_and_is_graded() -> None:
    run = play("targets-click", *[{"action": "click", "x": 0, "y": 0}] * 5, seed=4)
    assert run.trace.stop_reason == "max_steps"
    assert run.grade.info["state"]["clicks"] == 1


def test_items_are_checked_off_by_mouse() -> None:
    app = Todo(count=3, seed=6)
    boxes = [app.boxes[f"check:{i}"].center for i in range(3)]
    clicks = [{"action": "click", "x": x, "y": y} for x, y in boxes]
    assert play("todo-complete", *clicks, seed=6, complete=3).reward == 1.0
    assert play("todo-complete", *clicks, seed=6, complete=1).reward == 0.0
    one = play("todo-complete", seed=6, complete=1)
    text = one.prompt_text.removeprefix("Check off: ").removesuffix(". Leave the rest.")
    index = [item["text"] for item in one.grade.info["state"]["items"]].index(text)
    assert play("todo-complete", clicks[index], seed=6, complete=1).reward == 1.0


def test_an_item_is_created_by_typing() -> None:
    typed = {"action": "type", "text": "Récolter 日\n"}
    assert play("todo-create", typed, text="Récolter 日").reward == 1.0
    assert play("todo-create", typed, text="Something else").reward == 0.0
    wanted = play("todo-create", seed=3).prompt_text.removeprefix("Add the item: ")
    assert play("todo-create", {"action": "type", "text": wanted + "\n"}, seed=3).reward == 1.0


@pytest.mark.parametrize("task", tasks, ids=lambda task: task.slug)
def test_members_of_a_group_start_from_the_same_pixels_and_other_seeds_do_not(task: Task) -> None:
    """The baseline of a group is a mean over one start state."""
    same = [play(task.id, **task.args) for _ in range(2)]
    assert first_image(same[0]) == first_image(same[1])
    assert same[0].prompt == same[1].prompt
    other = play(task.id, **{**task.args, "seed": task.args["seed"] + 1})
    assert first_image(other) != first_image(same[0])
    assert all(run.trace.status == "completed" for run in [*same, other])


@pytest.mark.parametrize("size", [(128, 128), (96, 96), (320, 200)])
def test_the_size_of_the_screen_is_an_argument(size: tuple[int, int]) -> None:
    import base64
    import io

    from PIL import Image

    run = play("2048-score", width=size[0], height=size[1])
    assert Image.open(io.BytesIO(base64.b64decode(first_image(run)))).size == size


@pytest.mark.parametrize(
    ("id", "args", "words"),
    [
        ("2048-score", {"target": 0}, "target must be at least 1"),
        ("2048-score", {"turns": 0}, "turns must be at least 1"),
        ("2048-score", {"width": 20}, "20x128"),
        ("2048-reach-tile", {"tile": 63}, "power of two"),
        ("todo-complete", {"complete": 9}, "complete must be 1 to 3"),
        ("todo-create", {"text": " "}, "neither blank nor padded"),
        ("targets-click", {"level": 7}, "levels 1, 2 and 3"),
        ("targets-click", {"reward": "close"}, "'inside' or 'distance'"),
        ("targets-click", {"rewrad": "inside"}, "rewrad"),
    ],
)
def test_wrong_arguments_fail_the_episode_before_it_starts(id, args, words) -> None:
    run = play(id, **args)
    assert run.trace.status == "error"
    assert words in (run.trace.error or "")


def test_a_state_that_the_grader_cannot_read_is_a_failure_not_a_zero(monkeypatch) -> None:
    monkeypatch.setattr(Targets, "state", lambda self: {"app": "targets"})
    run = play("targets-click")
    assert run.trace.status == "error"
    assert run.grade.is_error
    assert "the app's state has hit = None" in (run.trace.error or "")


def test_a_second_episode_on_a_busy_desktop_is_refused() -> None:
    """Two policies on one screen would play each other's game."""

    async def scenario() -> str:
        env = LabEnvironment()
        await env.start()
        first = env.templates["2048-score"].func()
        await anext(first)
        try:
            with pytest.raises(Exception, match="plays another episode") as error:
                await anext(env.templates["2048-score"].func())
        finally:
            await first.aclose()
            await env.stop()
        third = env.templates["2048-score"].func()
        await anext(third)
        await third.aclose()
        return str(error.value)

    assert "LocalRuntime(build)" in asyncio.run(scenario())
