"""Scripted players."""

import asyncio
import random
import re
from collections import Counter
from dataclasses import replace

import pytest
from hud.eval import LocalRuntime, Task
from PIL import ImageChops

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.coordinates import View
from cua_lab.computer.schema import parse_call, tool_schema
from cua_lab.demonstrators.demos import (
    ClickPlayer,
    Demo,
    GamePlayer,
    PromptContext,
    ReadingPlayer,
    corpus_of,
    demo_stream,
)
from cua_lab.demonstrators.lab_experts import expert
from cua_lab.demonstrators.todo_player import TodoPlayer
from cua_lab.desktop.apps import Game2048, Todo, boards2048
from cua_lab.desktop.apps.transcripts import LETTERS, board_thought, keys_along, lines_thought
from cua_lab.env_package import env_package
from cua_lab.errors import LabError
from cua_lab.hud_quirks import template_parameters
from cua_lab.play.agent import LabAgentConfig
from cua_lab.play.episode import play
from cua_lab.play.scripted import ScriptedTransport

TOOL = tool_schema(ToolConfig(coordinate_space="0-1000", max_keys_per_call=20), (128, 128))
SCENE = PromptContext("Use the screen.", (TOOL,))
CLICK = ClickPlayer(SCENE)
GAME = GamePlayer(SCENE, "Reach a high score.")
READING = ReadingPlayer(SCENE, "Make a 64 tile with 2 keys.", think="pair")


def calls(demo: Demo) -> list[dict]:
    return [
        message["tool_calls"][0]["function"]["arguments"]
        for message in demo.messages
        if message["role"] == "assistant"
    ]


def test_a_demo_has_the_shape_of_a_rollout() -> None:
    """HUD: the task with the first screenshot, then call, tool result, and a user's image."""
    demo = GamePlayer(SCENE, "Go.", turns=2)(0)
    assert [message["role"] for message in demo.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert demo.messages[1]["content"] == [{"type": "text", "text": "Go."}, {"type": "image"}]
    assert demo.messages[3]["content"] == "Tool executed successfully"
    assert demo.messages[4]["content"][0]["text"] == "Tool returned the following:"
    assert len(demo.images) == 2


def test_without_a_first_screenshot_the_player_asks_for_one() -> None:
    demo = ClickPlayer(PromptContext(None, (TOOL,), first_screenshot=False))(0)
    assert calls(demo)[0] == {"action": "screenshot"}
    assert [m["role"] for m in demo.messages] == ["user", "assistant", "tool", "user", "assistant"]


@pytest.mark.parametrize("player", [CLICK, GAME, READING])
def test_the_same_index_gives_the_same_demo_and_another_index_another(player) -> None:
    first, again, other = player(3), player(3), player(4)
    assert first.messages == again.messages
    assert [i.tobytes() for i in first.images] == [i.tobytes() for i in again.images]
    assert first.images[0].tobytes() != other.images[0].tobytes()


@pytest.mark.parametrize("player", [CLICK, GAME, READING])
def test_every_call_is_one_the_tool_accepts(player) -> None:
    config = ToolConfig(coordinate_space="0-1000", max_keys_per_call=20)
    for index in range(50):
        for call in calls(player(index)):
            parse_call(call, View((128, 128), space="0-1000"), config)


def test_clicks_land_in_the_target_and_with_much_noise_beside_it() -> None:
    def inside(player: ClickPlayer) -> float:
        hits = 0
        for index in range(100):
            call = calls(player(index))[0]
            point = player.view.to_screen(call["x"], call["y"])
            hits += player.app_of(index).target.box.contains(*point)
        return hits / 100

    assert inside(CLICK) > 0.97
    assert inside(ClickPlayer(SCENE, noise=0.15)) < 0.6


def thoughts(demo: Demo) -> list[str]:
    return [m["content"] for m in demo.messages if m["role"] == "assistant"]


def test_a_reader_says_the_board_it_is_shown_and_what_follows_from_it() -> None:
    demo = READING(0)
    board = boards2048.near_win(64, 2, random.Random("reading 0 0").randrange(2**31))
    assert thoughts(demo)[0] == board_thought(board)
    for said, image in zip(thoughts(demo), demo.images, strict=True):
        rows = [[2 ** int(c) if c != "0" else 0 for c in row] for row in said.split()[0].split("/")]
        shown = Game2048(start=rows)
        square = (0, 20, 128, 128)  # below the score
        assert shown.draw().crop(square).tobytes() == image.crop(square).tobytes()


def test_a_reader_wins_as_often_as_its_keys_are_not_random() -> None:
    def wins(player: ReadingPlayer) -> float:
        won = 0
        for index in range(200):
            seed = random.Random(f"reading 0 {index}").randrange(2**31)
            game = Game2048(near_win=64, seed=seed)
            for call in calls(player(index)):
                game.push(call["keys"][0])
            won += game.state()["max_tile"] == 64
        return won / 200

    assert wins(replace(READING, random_keys=0.0)) == 1.0
    assert 0.4 < wins(READING) < 0.6


def test_a_recipe_names_what_is_said() -> None:
    assert thoughts(replace(READING, think=None)(0)) == ["", ""]
    unsaid = ReadingPlayer(SCENE, "Go.")  # a recipe's `think: null` gives no name: it only acts
    assert thoughts(unsaid(0)) == ["", ""]
    (first, second) = thoughts(replace(READING, think="transcript")(0))
    assert [first, second] == [said.split()[0] for said in thoughts(READING(0))]
    with pytest.raises(LabError, match="think is 'aloud'; a player of 2048 says transcript, pair"):
        ReadingPlayer(SCENE, "Go.", think="aloud")


def test_a_clicker_says_the_colours_of_the_cells_and_the_one_to_click() -> None:
    for index in range(40):
        player = ClickPlayer(SCENE, level=2, think="grid", noise=0.0)
        demo, app = player(index), player.app_of(index)
        grid, cell = thoughts(demo)[0].split()
        rows = grid.split("/")
        row, column = int(cell[0]) - 1, int(cell[1]) - 1
        x, y = app.target.box.center
        assert (row, column) == (y // 32, x // 32)
        here = {LETTERS[t.colour] for t in app.things if t.box.center[1] // 32 == row
                and t.box.center[0] // 32 == column}  # fmt: skip
        assert rows[row][column] in here
        assert {c for r in rows for c in r} - {"0"} <= {LETTERS[t.colour] for t in app.things}
    with pytest.raises(LabError, match="think is 'pair'; a player of targets says grid"):
        ClickPlayer(SCENE, think="pair")


@pytest.mark.parametrize(
    ("board", "said"),
    [
        ("5440/0000/0000/0000", "12 13 row"),
        ("4000/5000/0000/4000", "none"),
        ("4000/0000/0000/4000", "11 41 column"),
        ("1040/0000/0000/1040", "13 43 column"),
        ("1100/0000/0000/0000", "11 12 row"),
        ("4040/0000/4000/0000", "11 13 row"),
    ],
)
def test_the_pair_is_the_largest_two_that_one_key_merges(board: str, said: str) -> None:
    rows = tuple(tuple(2 ** int(c) if c != "0" else 0 for c in row) for row in board.split("/"))
    assert board_thought(rows) == f"{board} {said}"
    merging = {"row": ("left", "right"), "column": ("up", "down")}.get(said.split()[-1])
    assert keys_along(board_thought(rows)) == (merging or ("left", "right", "up", "down"))


def test_the_screens_are_those_of_the_keys_played() -> None:
    """Every list of keys changes the board, now and then none of its keys does."""
    demo = GAME(0)
    differ = [
        ImageChops.difference(a, b).getbbox() is not None
        for a, b in zip(demo.images, demo.images[1:], strict=False)
    ]
    assert sum(differ) >= 2


def test_players_of_2048_are_weak_but_know_where_a_long_list_ends() -> None:
    """Few keys leave room for GRPO; lists that drift over the limit made valid calls dip to .72."""
    lengths = [len(call["keys"]) for index in range(200) for call in calls(GAME(index))]
    assert 2.5 < sum(lengths) / len(lengths) < 5
    assert max(lengths) == 16
    assert 0.05 < sum(length >= 8 for length in lengths) / len(lengths) < 0.2
    assert 0.02 < sum(length == 16 for length in lengths) / len(lengths) < 0.1
    keys = Counter(
        key for index in range(50) for call in calls(GAME(index)) for key in call["keys"]
    )
    assert min(keys.values()) > 0.7 * max(keys.values())


def test_a_player_that_wants_more_keys_than_a_call_takes_is_refused() -> None:
    with pytest.raises(LabError, match="mean_keys is 30 and longest 16"):
        GamePlayer(SCENE, "Go.", mean_keys=30)


def test_a_stream_goes_through_all_demos_before_it_repeats() -> None:
    stream = demo_stream(lambda index: index, 5, seed=0)  # type: ignore[arg-type,return-value]
    first, second = [next(stream) for _ in range(5)], [next(stream) for _ in range(5)]
    assert sorted(first) == sorted(second) == list(range(5))  # type: ignore[type-var]
    assert first != second


def test_one_corpus_serves_several_players() -> None:
    corpus = corpus_of((CLICK, GAME), count=5)
    assert len(corpus.texts) == 10
    assert len(corpus.phrases) == 1
    assert corpus.phrases[0].startswith("system\nUse the screen.")


def test_to_dos_are_read_out_and_the_named_one_is_checked() -> None:
    player = TodoPlayer(SCENE, think="list", random_rows=0.0, noise=0.0)
    for index in range(12):
        demo = player(index)
        task = demo.messages[1]["content"][0]["text"]
        said = demo.messages[2]["content"]
        texts = re.findall(r"[A-Z][a-z]+ [a-z]+", said)
        named = texts[int(said[-1]) - 1]
        assert task == f"Check off: {named}. Leave the rest."
        call = calls(demo)[0]
        app = Todo(items=texts)
        for buttons in (1, 0):
            app.pointer(call["x"] * 128 // 1000, call["y"] * 128 // 1000, buttons)
        assert [item.text for item in app.items if item.done] == [named]


def test_two_to_dos_take_two_turns_and_strays_click_other_rows() -> None:
    demo = TodoPlayer(SCENE, complete=2, random_rows=0.0)(1)
    assert len(demo.images) == 2
    assert len({call["y"] // 80 for call in calls(demo)}) == 2
    player = TodoPlayer(SCENE, think="list", random_rows=1.0)
    right = sum(
        calls(demo)[0]["y"] // 132 == int(demo.messages[2]["content"][-1])
        for demo in map(player, range(60))
    )
    assert 10 <= right <= 30


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"think": "pair"}, "says list"),
        ({"random_rows": 1.5}, "a share from 0 to 1"),
        ({"items": 9}, "has room for"),
    ],
)
def test_a_player_of_to_dos_knows_its_limits(options: dict, complaint: str) -> None:
    with pytest.raises(LabError, match=complaint):
        TodoPlayer(SCENE, **options)


def test_the_largest_pair_of_each_line_names_the_same_line_as_the_largest_pair() -> None:
    board = ((2, 0, 0, 0), (8, 8, 0, 2), (16, 32, 0, 0), (2, 4, 8, 4))
    assert lines_thought(board) == "1000/3301/4500/1232 0300 0000 row"
    for seed in range(50):
        said = lines_thought(boards2048.mid_game(seed))
        assert said.split()[-1] == board_thought(boards2048.mid_game(seed)).split()[-1]


@pytest.mark.parametrize(
    ("template", "args"),
    [
        ("targets-click", {"level": 3, "buttons": 4}),
        ("todo-complete", {"complete": 2}),
        ("errands-open", {"turns": 3}),
        ("2048-near-win", {"merges": 2}),
        ("2048-best-merge", {}),
    ],
)
def test_an_expert_earns_all_there_is(template: str, args: dict) -> None:
    """Through HUD, the agent and the tool, as a policy's episodes."""
    package = env_package("cua_lab.envs.lab")
    defaults = {
        name: parameter.default
        for name, parameter in template_parameters(package.env, template).items()
    }
    tool = ToolConfig(coordinate_space="0-1000")

    async def played() -> list[float | None]:
        rewards = []
        for seed in range(3):
            whole = {**defaults, **args, "seed": seed}
            episode = await play(
                Task(env=package.name, id=template, args=whole, slug=template),
                LabAgentConfig(model="expert", system_prompt=None, tool=tool, max_steps=4),
                ScriptedTransport(expert(template, whole)),
                runtime=LocalRuntime(package.build),
                id=f"e{seed}",
                group="g",
            )
            rewards.append(episode.reward)
        return rewards

    assert asyncio.run(played()) == [1.0] * 3


def test_the_expert_of_2048_gains_at_once_and_nobody_plays_what_is_unknown() -> None:
    args = {"width": 128, "height": 128, "seed": 5, "turns": 2}
    player = expert("2048-score", args, max_keys=3)
    said = [player([{"role": "assistant"}] * turn) for turn in range(3)]
    assert [len(call.get("keys", ())) for call in said] == [3, 3, 0]
    assert said[2] == {"action": "finish"}
    with pytest.raises(LabError, match="no expert for 'todo-create'"):
        expert("todo-create", args)
