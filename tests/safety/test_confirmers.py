"""Confirmers: a terminal's yes is a yes, everything else is no."""

import asyncio
import io

import pytest

from cua_lab.safety.confirmers import AlwaysDeny, Answer, Question, Scripted, TerminalPrompt
from cua_lab.safety.policy_file import Decision

QUESTION = Question(
    1, "e1", {"action": "type", "text": "hi\x1b[2Jthere"}, (), Decision("confirm", "high", "why"),
    b"png", thought="I will\x1b[H send it",
)  # fmt: skip


def asked(line):
    sink = io.StringIO()
    answer = asyncio.run(TerminalPrompt(io.StringIO(line), sink).confirm(QUESTION))
    return answer, sink.getvalue()


@pytest.mark.parametrize(
    ("line", "verdict"),
    [("y\n", "approve"), (" YES \n", "approve"), ("a\n", "approve_alike"), ("n\n", "reject"),
     ("\n", "reject"), ("", "reject"), ("yy\n", "reject"), ("approve\n", "reject")],
)  # fmt: skip
def test_a_terminal_s_answers(line, verdict) -> None:
    assert asked(line)[0].verdict == verdict


def test_a_policy_s_words_cannot_rewrite_the_terminal() -> None:
    _, shown = asked("n\n")
    assert "\x1b" not in shown
    assert "type text" in shown


def test_nobody_says_no() -> None:
    assert asyncio.run(AlwaysDeny().confirm(QUESTION)).verdict == "reject"


def test_a_script_that_ended_says_no() -> None:
    script = Scripted([Answer("approve")])
    verdicts = [asyncio.run(script.confirm(QUESTION)).verdict for _ in range(3)]
    assert verdicts == ["approve", "reject", "reject"]


def test_an_answer_is_one_of_four() -> None:
    with pytest.raises(ValueError, match="none of"):
        Answer("maybe")
    with pytest.raises(ValueError, match="edit"):
        Answer("edit")
    with pytest.raises(ValueError, match="edit"):
        Answer("approve", "", {"action": "screenshot"})
