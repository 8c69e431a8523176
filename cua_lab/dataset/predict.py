"""Asking a served policy where it would click: grounding samples in, points out.

    sample ──Asking──▶ chat completion (text, screenshot) ──▶ tool call ──▶ a point in 0-1, or None

Works with anything that speaks chat completions: the embedded engine in this process, or a server.
Invariant: a policy's bad answer is `None`; a server's refusal or a missing screenshot raises, and
is never counted as a miss.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpx

from cua_lab.computer.schema import NAME
from cua_lab.dataset.grounding import GroundingSample
from cua_lab.dataset.prompt_format import PromptFormat
from cua_lab.dataset.spaces import Point, Size
from cua_lab.engine.engine import Engine
from cua_lab.errors import LabError
from cua_lab.pictures import open_rgb, png_bytes, size_of
from cua_lab.play.episode import play_slots
from cua_lab.policy.template import image_part
from cua_lab.serving.client import ChatClient, EngineRefused
from cua_lab.serving.sampling_request import sampling_request
from cua_lab.serving.server import SLOT_HEADER, create_app
from cua_lab.serving.toolcalls import parse_tool_calls

if TYPE_CHECKING:
    from cua_lab.policy.policy import Policy

Screens = Literal["own", "shuffled", "blank"]
MAX_TOKENS = 128
"""Of one answer: a call, after a sentence or two."""


@dataclass(frozen=True, slots=True)
class Question:
    """One sample with the screenshot that is shown for it."""

    sample: GroundingSample
    screenshot: Path
    """Another sample's where screens are shuffled."""
    blank: bool = False


def questions_of(
    samples: Sequence[GroundingSample], root: Path, screens: Screens = "own"
) -> list[Question]:
    """Every sample with a box; `shuffled` deals it a screen that asks for something else.

    A policy that sees falls to the rate of blind clicks there; one that learnt where targets
    usually are does not.
    """
    measured = [sample for sample in samples if sample.bbox is not None]
    shown = [root / sample.screenshot for sample in measured]
    if screens == "shuffled":
        others = {path: index for index, path in enumerate(dict.fromkeys(shown))}
        names = list(others)
        if len(names) < 2:
            raise LabError("screens cannot be shuffled: all samples have the same screenshot")
        shown = [names[(others[path] + 1) % len(names)] for path in shown]
    return [Question(s, p, screens == "blank") for s, p in zip(measured, shown, strict=True)]


async def predict_with_policy(
    policy: Policy,
    questions: Sequence[Question],
    prompt_format: PromptFormat,
    *,
    concurrency: int = 64,
    threads: int = 1,
    on_answer: Callable[[], object] = lambda: None,
) -> list[Point | None]:
    """Greedy answers of a policy in this process, in rounds that time cannot change."""
    engine = Engine(policy, max_batch=concurrency, threads=threads)
    try:
        served = create_app(engine)
        slots = engine.open_slots(min(concurrency, len(questions)))

        async def ask_one(question: Question, k: int) -> Point | None:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(served),
                base_url="http://engine/v1/",
                headers={SLOT_HEADER: str(slots[k])},
                timeout=None,
            ) as http:
                point = await ask(http, question, prompt_format, model=policy.name)
            on_answer()
            return point

        with _one_error():
            return await play_slots(
                questions,
                ask_one,
                concurrency=len(slots),
                leave=lambda k: engine.close_slot(slots[k]),
            )
    finally:
        engine.close()


async def predict_with_server(
    http: httpx.AsyncClient,
    questions: Sequence[Question],
    prompt_format: PromptFormat,
    *,
    model: str,
    concurrency: int = 8,
    standard_fields: bool = False,
    on_answer: Callable[[], object] = lambda: None,
) -> list[Point | None]:
    """Greedy answers of any OpenAI-compatible server; `http`'s base URL ends in `/v1/`.

    `standard_fields` leaves out the sampling options that OpenAI's own API refuses.
    """

    async def ask_one(question: Question, _: int) -> Point | None:
        point = await ask(
            http, question, prompt_format, model=model, standard_fields=standard_fields
        )
        on_answer()
        return point

    with _one_error():
        return await play_slots(questions, ask_one, concurrency=concurrency)


@contextmanager
def _one_error() -> Iterator[None]:
    """The first of the errors that ended the questions, instead of a group of them."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def ask(
    http: httpx.AsyncClient,
    question: Question,
    prompt_format: PromptFormat,
    *,
    model: str,
    standard_fields: bool = False,
) -> Point | None:
    """One question, answered greedily; `standard_fields` as in `predict_with_server`."""
    png, size = picture_of(question)
    try:
        answer = await ChatClient(http).chat.completions.create(
            model=model,
            messages=prompt_format.messages(question.sample.instruction, image_part(png)),
            tools=prompt_format.tools(size),
            **sampling_request(
                temperature=0.0, max_tokens=MAX_TOKENS, standard_only=standard_fields
            ),
        )
    except EngineRefused as error:
        raise LabError(f"{http.base_url} refused: {error}") from error
    except httpx.TransportError as error:
        raise LabError(f"cannot reach {http.base_url}: {error}") from error
    return prompt_format.read(arguments_of(answer), size)


def picture_of(question: Question) -> tuple[bytes, Size]:
    """The screenshot as PNG, and its size."""
    image = open_rgb(question.screenshot, "the screenshot")
    if question.blank:
        image.paste((232, 232, 232), (0, 0, *image.size))
    return png_bytes(image), image.size


def arguments_of(answer: Any) -> dict[str, Any] | None:
    """The arguments of an answer's one call, parsed by the server or left in its text."""
    message = answer.choices[0].message
    calls = [
        (call.function.name, call.function.arguments)
        for call in getattr(message, "tool_calls", None) or []
    ]
    if not calls:
        parsed = parse_tool_calls(getattr(message, "content", None) or "", {NAME})
        calls = [(call.name, call.arguments) for call in parsed.calls]
    if len(calls) != 1 or calls[0][0] != NAME:
        return None
    try:
        arguments = json.loads(calls[0][1])
    except (TypeError, ValueError):
        return None
    return arguments if isinstance(arguments, dict) else None


def sized(sample: GroundingSample, root: Path) -> GroundingSample:
    """The sample with its screenshot's size, which pixels need to become fractions."""
    if sample.image_size is not None:
        return sample
    return replace(sample, image_size=size_of(root / sample.screenshot, "the screenshot"))
