"""Asking a confirmer that may do anything: whatever happens, an answer comes, and in time.

    confirmer + question ──ask──▶ Answer (its own, or a rejection that says what went wrong)

Invariant: the result approves only if the confirmer returned an `Answer` that does, within the
limit; the caller is never held longer than that by a confirmer that lets the event loop run.
"""

from __future__ import annotations

import asyncio
from typing import Any

from cua_lab.safety.confirmers import Answer, Confirmer, Question


async def ask(confirmer: Confirmer, question: Question, *, limit_s: float) -> Answer:
    """One question, one answer."""
    task = asyncio.ensure_future(_confirmed(confirmer, question))
    task.add_done_callback(_forget)
    try:
        done, _ = await asyncio.wait({task}, timeout=limit_s)
    finally:
        task.cancel()  # it is not waited for: one that will not end must not hold the episode
    return _answer_of(task) if done else Answer("reject", f"no answer within {limit_s:g} s")


def _answer_of(task: asyncio.Future[Any]) -> Answer:
    if task.cancelled():
        return Answer("reject", "the confirmer was cancelled")
    if (error := task.exception()) is not None:
        return Answer("reject", f"the confirmer failed: {type(error).__name__}")
    answer = task.result()
    if type(answer) is not Answer:
        return Answer("reject", f"the confirmer answered with a {type(answer).__name__}")
    try:
        return Answer(answer.verdict, str(answer.why), answer.call)  # checked again
    except Exception as error:  # whatever it is, it is no answer
        return Answer("reject", f"the confirmer's answer is none: {type(error).__name__}")


async def _confirmed(confirmer: Confirmer, question: Question) -> Any:
    return await confirmer.confirm(question)


def _forget(task: asyncio.Future[Any]) -> None:
    """Read what a task ended with, so that nobody complains that it was not read."""
    if not task.cancelled():
        task.exception()
