"""Players that are functions act through the same wire as a model."""

import asyncio
import json
from collections import Counter

import httpx

from cua_lab.play.scripted import ScriptedTransport, in_turn, random_clicks, random_keys


def test_a_player_answers_with_one_computer_call_and_no_token_ids() -> None:
    async def ask() -> dict:
        transport = ScriptedTransport(lambda messages: {"action": "click", "x": 1, "y": 2})
        async with httpx.AsyncClient(transport=transport) as client:
            body = {"model": "none", "messages": []}
            return (await client.post("http://engine/v1/chat/completions", json=body)).json()

    (choice,) = asyncio.run(ask())["choices"]
    function = choice["message"]["tool_calls"][0]["function"]
    assert json.loads(function["arguments"]) == {"action": "click", "x": 1, "y": 2}
    assert "token_ids" not in choice


def test_random_keys_spend_the_budget_they_are_given() -> None:
    player = random_keys(seed=1, keys_per_turn=4.25, at_most=20)
    counts = Counter(len(player([])["keys"]) for _ in range(4000))
    assert set(counts) == {4, 5}
    assert abs(counts[5] / 4000 - 0.25) < 0.03


def test_random_keys_never_exceed_what_a_call_may_hold() -> None:
    player = random_keys(seed=1, keys_per_turn=31.5, at_most=20)
    assert {len(player([])["keys"]) for _ in range(50)} == {20}


def test_random_clicks_are_the_same_for_the_same_seed() -> None:
    first, second = random_clicks(3), random_clicks(3)
    assert [first([]) for _ in range(5)] == [second([]) for _ in range(5)]


def test_fixed_calls_are_played_one_a_turn_and_then_it_is_over() -> None:
    player = in_turn([{"action": "press", "keys": ["up"]}, {"action": "press", "keys": ["left"]}])
    said = [{"role": "assistant"}]
    assert [player(said * turn)["action"] for turn in range(3)] == ["press", "press", "finish"]
