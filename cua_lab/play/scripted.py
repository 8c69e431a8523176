"""Players that are functions, behind the same wire as a model: random keys, experts, sabotage.

A player maps the messages of a request to the arguments of one `computer` call.
Invariant: such an episode goes through the same agent, tool, desktop and grader as the policy's,
and carries no token ids, so that it can be measured but never trained on.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import httpx

from cua_lab.errors import LabError
from cua_lab.serving.in_process import InProcess

Messages = list[dict[str, Any]]
ScriptedPolicy = Callable[[Messages], dict[str, Any] | Awaitable[dict[str, Any]]]
"""Messages so far -> arguments of the next `computer` call, at once or awaited."""


class ScriptedTransport(InProcess, httpx.AsyncBaseTransport):
    """A chat-completions server that asks a player instead of a model; HTTP, or without it."""

    def __init__(self, player: ScriptedPolicy) -> None:
        self.player = player
        self.calls = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self.answer(json.loads(await request.aread()))
        return httpx.Response(200, json=answer, request=request)

    async def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The player's call as a `chat.completion`."""
        arguments = self.player(body["messages"])
        if inspect.isawaitable(arguments):
            arguments = await arguments
        self.calls += 1
        call = {
            "id": f"call_{self.calls}",
            "type": "function",
            "function": {"name": "computer", "arguments": json.dumps(arguments)},
        }
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}
        return {
            "id": f"scripted-{self.calls}",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [choice],
        }


def random_clicks(seed: int, space: str = "0-1000") -> ScriptedPolicy:
    """Clicks anywhere on the screen, uniformly, in the space 0-1000; refuses another one."""
    if space != "0-1000":
        raise LabError(f"random clicks are made in the space 0-1000, not {space}")
    random = Random(seed)

    def player(_: Messages) -> dict[str, Any]:
        return {"action": "click", "x": random.randint(0, 1000), "y": random.randint(0, 1000)}

    return player


def random_keys(seed: int, keys_per_turn: float, at_most: int) -> ScriptedPolicy:
    """Random arrow keys, `keys_per_turn` on average: the same budget as the policy, no eyes."""
    random = Random(seed)
    whole, rest = divmod(min(keys_per_turn, at_most), 1)

    def player(_: Messages) -> dict[str, Any]:
        count = max(1, int(whole) + (random.random() < rest))
        keys = [random.choice(("up", "down", "left", "right")) for _ in range(count)]
        return {"action": "press", "keys": keys}

    return player


def in_turn(calls: Sequence[dict[str, Any]]) -> ScriptedPolicy:
    """Fixed calls, one a turn, whatever is on the screen; `finish` when they are used up."""

    def player(messages: Messages) -> dict[str, Any]:
        turn = sum(message["role"] == "assistant" for message in messages)
        return calls[turn] if turn < len(calls) else {"action": "finish"}

    return player
