"""The notebook's confirmer: a message answers the question that it names, and nothing else does."""

import asyncio
import io

import pytest
from PIL import Image

from cua_lab.lessons.confirm_widget import ConfirmWidget
from cua_lab.safety.confirmers import Question
from cua_lab.safety.policy_file import Decision


def question(number=7):
    png = io.BytesIO()
    Image.new("RGB", (16, 16)).save(png, "PNG")
    return Question(number, "e1", {"action": "click", "x": 3, "y": 4}, (),
                    Decision("confirm", "high", "because"), png.getvalue(), ((0.2, 0.3),),
                    "I will", 5.0)  # fmt: skip


def answered(*messages, threads=False):
    """The answer, or `None` where these messages give none."""

    async def drive():
        widget = ConfirmWidget()
        asking = asyncio.create_task(widget.confirm(question()))
        await asyncio.sleep(0)
        shown = dict(widget.question)
        for message in messages:
            if threads:  # JupyterLab's subshells
                await asyncio.to_thread(widget._handle_custom_msg, message, [])
            else:
                widget._handle_custom_msg(message, [])
        await asyncio.sleep(0.01)
        answer = asking.result() if asking.done() else None
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert widget.question == {}
        return answer, shown, widget

    return asyncio.run(drive())


@pytest.mark.parametrize("verdict", ["approve", "approve_alike", "reject"])
@pytest.mark.parametrize("threads", [False, True])
def test_a_button_is_an_answer(verdict, threads) -> None:
    answer, shown, widget = answered({"number": 7, "verdict": verdict}, threads=threads)
    assert answer.verdict == verdict
    assert shown["words"] == "click x 3, y 4"
    assert shown["screenshot"].startswith("data:image/png")
    assert "click x 3" in repr(widget)


def test_an_edit_brings_its_call() -> None:
    call = '{"action": "screenshot"}'
    answer, _, _ = answered({"number": 7, "verdict": "edit", "call": call})
    assert dict(answer.call) == {"action": "screenshot"}


@pytest.mark.parametrize(
    "message",
    [{"number": 7}, {"number": 7, "verdict": "yes"}, {"number": 7, "verdict": ["approve"]},
     {"number": 7, "verdict": "edit", "call": "{"}, {"number": 7, "verdict": "edit", "call": "[]"},
     {"number": 7, "verdict": "edit"}],
)  # fmt: skip
def test_nonsense_is_a_no(message) -> None:
    assert answered(message)[0].verdict == "reject"


@pytest.mark.parametrize(
    "message", [{"number": 6, "verdict": "approve"}, {"verdict": "approve"}, "approve", None, []]
)
def test_a_late_click_answers_no_other_question(message) -> None:
    assert answered(message)[0] is None


def test_only_the_first_answer_counts() -> None:
    first, second = ({"number": 7, "verdict": v} for v in ("reject", "approve"))
    assert answered(first, second)[0].verdict == "reject"


def test_a_press_waits_for_a_question_and_answers_it_as_a_button_would() -> None:
    async def drive():
        widget = ConfirmWidget()
        pressing = asyncio.create_task(widget.press("edit", call='{"action": "screenshot"}'))
        await asyncio.sleep(0)
        assert not pressing.done(), "nothing is asked yet"
        answer = await widget.confirm(question())
        await pressing
        return answer, widget

    answer, widget = asyncio.run(drive())
    assert dict(answer.call) == {"action": "screenshot"}
    assert "replaced by another call" in repr(widget)
