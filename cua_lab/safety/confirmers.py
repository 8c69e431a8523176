"""Who is asked before a risky action, and what they may answer.

    Question ──confirm──▶ Answer (approve | reject | edit | approve_alike, why)

Invariant: a confirmer decides only by returning an `Answer`. Whatever else it does (raise, hang,
return something else) is a rejection; the gate sees to that, not the confirmer.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TextIO

from cua_lab.safety.effect_kinds import Effect
from cua_lab.safety.policy_file import Decision

AnswerVerdict = Literal["approve", "reject", "edit", "approve_alike"]
ANSWERS: tuple[AnswerVerdict, ...] = ("approve", "reject", "edit", "approve_alike")


@dataclass(frozen=True, slots=True)
class Question:
    """One action that waits for a yes."""

    number: int
    """Counts the questions of a gate; an answer belongs to one of them."""
    episode: str
    arguments: Mapping[str, Any]
    """The call as the policy made it."""
    effects: tuple[Effect, ...]
    decision: Decision
    screenshot: bytes
    """PNG of the screen that the action would meet, as the policy sees it."""
    at: tuple[tuple[float, float], ...] = ()
    """Where the action points, as parts of the screenshot's width and height."""
    thought: str = ""
    """What the policy said before the call."""
    limit_s: float = 60.0
    """After this the answer is no."""
    asked: int = 1
    """How many times: more than once where the screen changed under the question."""

    @property
    def words(self) -> str:
        """The action in a line: `type "hunter2"`."""
        rest = {key: value for key, value in self.arguments.items() if key != "action"}
        values = ", ".join(f"{key} {value!r}" for key, value in rest.items())
        return f"{self.arguments.get('action')} {values}".strip()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a confirmer says to one question."""

    verdict: AnswerVerdict
    why: str = ""
    call: Mapping[str, Any] | None = None
    """With `edit`: the arguments to run instead; they are judged like any other."""

    def __post_init__(self) -> None:
        if self.verdict not in ANSWERS:
            raise ValueError(f"verdict {self.verdict!r} is none of {', '.join(ANSWERS)}")
        if (self.verdict == "edit") != (self.call is not None):
            raise ValueError("an edit, and nothing else, comes with a call")


APPROVE = Answer("approve")


class Confirmer(Protocol):
    """Whoever is asked; one question at a time."""

    async def confirm(self, question: Question) -> Answer:
        """Decide; do not block the event loop."""


@dataclass(frozen=True, slots=True)
class AlwaysDeny:
    """Nobody is there: the default."""

    async def confirm(self, question: Question) -> Answer:
        return Answer("reject", "nobody is there to confirm it")


class Scripted:
    """Answers from a list, then no; for tests and lessons. `asked` holds the questions."""

    def __init__(self, answers: Iterable[Answer] = ()) -> None:
        self._answers = iter(tuple(answers))
        self.asked: list[Question] = []

    async def confirm(self, question: Question) -> Answer:
        self.asked.append(question)
        return next(self._answers, Answer("reject", "the script has no more answers"))


@dataclass(frozen=True, slots=True)
class Callback:
    """Asks an async function: of a service, a chat, a ticket."""

    ask: Callable[[Question], Awaitable[Answer]]

    async def confirm(self, question: Question) -> Answer:
        return await self.ask(question)


class TerminalPrompt:
    """Asks on a terminal: y, n, or a for all alike in this episode. Anything else is no.

    The line is read in a thread. One that comes too late is thrown away, and so is what stood
    unread in the input before the question.
    """

    def __init__(self, source: TextIO | None = None, sink: TextIO | None = None) -> None:
        self._source, self._sink = source or sys.stdin, sink or sys.stderr
        self._reading: threading.Thread | None = None

    async def confirm(self, question: Question) -> Answer:
        if self._reading is not None and self._reading.is_alive():
            self._say("Enter is still waited for by the last question; this one is refused.")
            return Answer("reject", "the terminal still waits for an earlier answer")
        self._say(_asked_in_words(question))
        loop, line = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        self._reading = threading.Thread(
            target=self._read, args=(loop, line), name="confirm", daemon=True
        )
        self._reading.start()
        return _read_answer(await line)

    def _read(self, loop: asyncio.AbstractEventLoop, line: asyncio.Future[str]) -> None:
        text = self._source.readline()

        def done() -> None:
            if not line.done():
                line.set_result(text)

        if not loop.is_closed():
            loop.call_soon_threadsafe(done)

    def _say(self, text: str) -> None:
        print(text, file=self._sink, flush=True)


def _asked_in_words(question: Question) -> str:
    thought = f"\n  it said: {_printable(question.thought)}" if question.thought else ""
    return (
        f"Episode {question.episode} wants to: {_printable(question.words)}{thought}\n"
        f"  {_printable(question.decision.reason)}\n"
        f"  approve? y, n, or a (all alike in this episode); no after {question.limit_s:g} s"
    )


def _printable(text: str) -> str:
    """Without control characters, which could rewrite what stands above on a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)[:500]


def _read_answer(line: str) -> Answer:
    match line.strip().lower():
        case "y" | "yes":
            return Answer("approve", "approved on the terminal")
        case "a" | "all":
            return Answer("approve_alike", "all alike approved on the terminal")
        case _:
            return Answer("reject", "not approved on the terminal")
