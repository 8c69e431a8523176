"""Demonstrations: scripted players that produce the conversations an agent would have had.

A `Demo` is a whole conversation in the shape of a rollout (system, user with the first screenshot,
assistant call, tool, user with the next screenshot, ...) that ends with the last call. A player is
a function from an index to a demo; the same player and index give the same demo. Invariant: pixels
are drawn by the app itself and equal what a screen over RFB would have sent.

The players are weak on purpose: a policy warmed up on perfect play leaves GRPO nothing to find.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from PIL import Image

from cua_lab.computer.coordinates import Space, View
from cua_lab.dataset.conversations import DONE
from cua_lab.desktop.apps import boards2048
from cua_lab.desktop.apps.game2048 import Game2048
from cua_lab.desktop.apps.targets import Targets
from cua_lab.desktop.apps.transcripts import (
    BOARD_THOUGHTS,
    board_thought,
    keys_along,
    things_thought,
)
from cua_lab.errors import LabError
from cua_lab.pictures import png_bytes
from cua_lab.policy.template import render_text
from cua_lab.policy.tokenizer import Corpus, phrases_of, train_tokenizer

Message = dict[str, Any]
SCREEN = "Tool returned the following:"
"""What HUD writes before the image of a tool result."""
KEYS = ("left", "right", "up", "down")


@dataclass(frozen=True, slots=True)
class PromptContext:
    """What the agent says around every conversation."""

    system: str | None
    """The agent's system prompt."""
    tools: tuple[dict[str, Any], ...]
    """The tool schemas it offers, as on the wire."""
    first_screenshot: bool = True
    """Whether the task comes with a screenshot."""


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """What a warm-up asks of `players.demonstrator`: demonstrations of which task, for whom."""

    template: str
    prompt: PromptContext
    args: Mapping[str, Any]
    """Of the task."""
    options: Mapping[str, Any]
    """A recipe's `sft.player`: what this player can be told, such as its noise."""
    space: Space
    max_keys: int
    """Keys of one call, at most."""
    turns: int
    """Of an episode, at most."""
    seed: int


@dataclass(frozen=True, slots=True)
class Demo:
    """One conversation and its screenshots."""

    messages: tuple[Message, ...]
    """Images are marks, `{"type": "image"}`."""
    images: tuple[Image.Image, ...]
    """In the order of the marks."""
    tools: tuple[dict[str, Any], ...]


class Demonstrator(Protocol):
    """A scripted player: demo number `index`, always the same one."""

    def __call__(self, index: int) -> Demo: ...


def png_of(image: Image.Image) -> bytes:
    """A screenshot as the computer tool encodes it."""
    return png_bytes(image)


class _Conversation:
    """Builds a demo message by message, in HUD's shape."""

    def __init__(self, prompt: PromptContext, task: str, screen: Image.Image) -> None:
        self._prompt = prompt
        self._messages: list[Message] = []
        self._images: list[Image.Image] = []
        if prompt.system is not None:
            self._messages.append({"role": "system", "content": prompt.system})
        self._messages.append({"role": "user", "content": [{"type": "text", "text": task}]})
        if prompt.first_screenshot:
            self._show(screen)
        else:
            self.call({"action": "screenshot"})
            self.result(screen)

    def _show(self, screen: Image.Image) -> None:
        self._messages[-1]["content"].append({"type": "image"})
        self._images.append(screen.copy())

    def call(self, arguments: dict[str, Any], thought: str = "") -> None:
        number = sum(1 for message in self._messages if message["role"] == "assistant")
        function = {"name": "computer", "arguments": arguments}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        self._messages.append({"role": "assistant", "content": thought, "tool_calls": [call]})

    def result(self, screen: Image.Image) -> None:
        call = self._messages[-1]["tool_calls"][0]["id"]
        self._messages.append({"role": "tool", "tool_call_id": call, "content": DONE})
        text = {"type": "text", "text": SCREEN}
        self._messages.append({"role": "user", "content": [text]})
        self._show(screen)

    def demo(self) -> Demo:
        return Demo(tuple(self._messages), tuple(self._images), self._prompt.tools)


@dataclass(frozen=True, slots=True)
class ClickPlayer:
    """Clicks near the middle of the target; one turn."""

    prompt: PromptContext
    level: int = 1
    width: int = 128
    height: int = 128
    noise: float = 0.02
    """Standard deviation of a click around the centre, as a share of the screen: with .06 and
    distractors vision emerges too late."""
    space: str = "0-1000"
    options: tuple[tuple[str, Any], ...] = ()
    """More arguments of `Targets`."""
    think: str | None = None
    """`grid`: it says the colours of the screen's cells, and the one to click."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.think not in (None, "grid"):
            raise LabError(f"think is {self.think!r}; a player of targets says grid")

    def __call__(self, index: int) -> Demo:
        app = self.app_of(index)
        rng = random.Random(f"noise {self.seed} {index}")
        x, y = app.target.box.center
        point = self.view.from_screen(
            _jitter(rng, x, self.width, self.noise), _jitter(rng, y, self.height, self.noise)
        )
        talk = _Conversation(self.prompt, app.instruction, app.draw())
        said = things_thought(app.things, app.target, app.size) if self.think else ""
        talk.call({"action": "click", "x": point[0], "y": point[1]}, said)
        return talk.demo()

    @property
    def view(self) -> View:
        return View((self.width, self.height), space=self.space)  # type: ignore[arg-type]

    def app_of(self, index: int) -> Targets:
        """The screen that demo number `index` is about."""
        seed = random.Random(f"click {self.seed} {index}").randrange(2**31)
        options = dict(self.options)
        return Targets(self.level, width=self.width, height=self.height, seed=seed, **options)


def _jitter(rng: random.Random, centre: int, size: int, noise: float) -> int:
    """A pixel near the centre, on the screen."""
    return min(size - 1, max(0, round(centre + rng.gauss(0.0, noise * size))))


@dataclass(frozen=True, slots=True)
class GamePlayer:
    """2048 with random directions: mostly few keys per turn, now and then a long list."""

    prompt: PromptContext
    task: str
    """The task's text, as the env words it."""
    turns: int = 4
    width: int = 128
    height: int = 128
    mean_keys: float = 2.5
    """Of the short lists, which follow a geometric law."""
    long_share: float = 0.1
    """Share of long lists."""
    longest: int = 16
    """Keys of the longest lists, of which every second long one is; the others have half of it or
    more. They teach where a list must end: a few keys before `max_keys`, so that GRPO, which asks
    for more and more keys, does not push lists over the limit (valid calls fell to .72)."""
    max_keys: int = 20
    """What the tool takes in one call."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.mean_keys <= self.longest <= self.max_keys:
            raise LabError(
                f"mean_keys is {self.mean_keys} and longest {self.longest}; expected "
                f"1 <= mean_keys <= longest <= max_keys ({self.max_keys})"
            )

    def __call__(self, index: int) -> Demo:
        seed, lists = self.script(index)
        app = Game2048(self.width, self.height, seed=seed)
        talk = _Conversation(self.prompt, self.task, app.draw())
        for turn, keys in enumerate(lists):
            if turn:
                talk.result(app.draw())
            for key in keys:
                app.push(key)  # type: ignore[arg-type]
            talk.call({"action": "press", "keys": keys})
        return talk.demo()

    def script(self, index: int) -> tuple[int, list[list[str]]]:
        """The game's seed and the keys of each turn of demo number `index`."""
        rng = random.Random(f"game {self.seed} {index}")
        seed = rng.randrange(2**31)
        return seed, [rng.choices(KEYS, k=self._count(rng)) for _ in range(self.turns)]

    def _count(self, rng: random.Random) -> int:
        if rng.random() < self.long_share:
            half = self.longest // 2
            return self.longest if rng.random() < 0.5 else rng.randint(half, self.longest)
        count = 1
        while count < self.longest // 2 and rng.random() < 1 - 1 / self.mean_keys:
            count += 1
        return count


@dataclass(frozen=True, slots=True)
class ReadingPlayer:
    """2048 from a near-win or a mid-game board: says what it reads, then presses one key.

    What it says is always right; the key is often random, so that GRPO has something to find: with
    0.6 the demonstrator itself wins every second board of two merges.
    """

    prompt: PromptContext
    task: str
    """The task's text, as the env words it."""
    tile: int | None = 64
    """Of a near win; None: a board of the middle of a game."""
    keys: int = 2
    """Pressed one a turn: the merges of a near win."""
    width: int = 128
    height: int = 128
    think: str | None = None
    """A name among `reading.BOARD_THOUGHTS`; None: it only acts."""
    random_keys: float = 0.6
    """Share of keys that come from nowhere; the others push along the line that was named."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.think is not None and self.think not in BOARD_THOUGHTS:
            raise LabError(
                f"think is {self.think!r}; a player of 2048 says {', '.join(BOARD_THOUGHTS)}"
            )
        if not 0 <= self.random_keys <= 1:
            raise LabError(f"random_keys is {self.random_keys}; expected a share from 0 to 1")

    def __call__(self, index: int) -> Demo:
        rng = random.Random(f"reading {self.seed} {index}")
        app = self._start(rng.randrange(2**31))
        talk = _Conversation(self.prompt, self.task, app.draw())
        for turn in range(self.keys):
            if turn:
                talk.result(app.draw())
            thought = board_thought(app.board)
            key = rng.choice(KEYS if rng.random() < self.random_keys else keys_along(thought))
            said = BOARD_THOUGHTS[self.think](app.board) if self.think else ""
            talk.call({"action": "press", "keys": [key]}, said)
            app.push(key)  # type: ignore[arg-type]
        return talk.demo()

    def _start(self, seed: int) -> Game2048:
        size = (self.width, self.height)
        if self.tile is None:
            return Game2048(*size, start=boards2048.mid_game(seed), seed=seed)
        return Game2048(*size, near_win=self.tile, near_win_merges=self.keys, seed=seed)


def demo_stream(player: Demonstrator, count: int, seed: int) -> Iterator[Demo]:
    """Endless demos from the first `count`, in a new order each time round."""
    rng = random.Random(f"order {seed}")
    while True:
        order = list(range(count))
        rng.shuffle(order)
        yield from (player(index) for index in order)


def corpus_of(
    players: tuple[Demonstrator, ...], *, count: int = 200, extra: tuple[str, ...] = ()
) -> Corpus:
    """The text that a tokenizer for these players is trained on: their rendered conversations.

    Every prompt's system message becomes one token. `extra` adds texts, such as other tasks'.
    """
    bare = train_tokenizer(Corpus(()))
    demos = [player(index) for player in players for index in range(count)]
    texts = [
        render_text(bare, demo.messages, demo.tools, add_generation_prompt=False) for demo in demos
    ]
    return Corpus((*texts, *extra), phrases_of(texts))
