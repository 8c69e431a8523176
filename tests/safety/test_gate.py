"""The gate: what is refused never reaches the screen, and what is asked is what is done."""

import asyncio
from dataclasses import replace

import pytest

from cua_lab.safety.audit import AuditLog, verify
from cua_lab.safety.confirmers import Answer, Callback, Scripted
from cua_lab.safety.effects import Element
from cua_lab.safety.gate import Gate
from cua_lab.safety.policy_file import load_policy
from tests.safety.conftest import DELETE, PLAIN, SHELL, words

CLICK = {"action": "click", "x": 10, "y": 20}
APPROVE = Answer("approve", "fine")


def gate(*answers, **more):
    return Gate(load_policy(), Scripted(answers), limit_s=5, **more)


def run(tool, arguments):
    return asyncio.run(tool.execute(arguments))


def test_an_ordinary_action_is_done_and_nobody_is_asked(bench) -> None:
    g = gate()
    result = run(bench.gated(g), CLICK)
    assert not result.isError
    assert bench.events
    assert not g.confirmer.asked


def test_without_a_human_a_risky_action_is_refused_in_words(bench) -> None:
    bench.context = DELETE
    tool = bench.gated(Gate(load_policy()))
    result = run(tool, CLICK)
    assert result.isError
    assert "Delete all" in words(result)
    assert "nobody is there" in words(result)
    assert not bench.events
    assert tool.judged[0].outcome == "rejected"


def test_after_a_yes_the_very_call_is_done(bench) -> None:
    bench.context = DELETE
    g = gate(APPROVE)
    result = run(bench.gated(g), CLICK)
    assert not result.isError
    assert ("point", 10, 20, 1) in bench.events
    (question,) = g.confirmer.asked
    assert question.at == ((10 / 128, 20 / 128),)
    assert question.screenshot.startswith(b"\x89PNG")


def test_a_denied_action_reaches_no_confirmer(bench) -> None:
    bench.context = SHELL
    g = gate(APPROVE)
    result = run(bench.gated(g), {"action": "type", "text": "sudo rm -rf /"})
    assert result.isError
    assert not g.confirmer.asked
    assert not bench.events


def test_the_arguments_cannot_change_between_question_and_action(bench) -> None:
    bench.context = DELETE
    arguments = dict(CLICK)

    async def ask(question):
        arguments.update(x=99)
        question.arguments.update(x=99)
        return APPROVE

    run(bench.gated(Gate(load_policy(), Callback(ask))), arguments)
    assert ("point", 10, 20, 1) in bench.events


def test_a_screen_that_changed_under_the_question_is_asked_about_anew(bench) -> None:
    bench.context = DELETE
    asked = []

    async def ask(question):
        asked.append(question.asked)
        if len(asked) == 1:
            bench.pixels = bench.pixels.copy()
            bench.pixels[40:80, 40:80] = 9
        return APPROVE

    result = run(bench.gated(Gate(load_policy(), Callback(ask))), CLICK)
    assert asked == [1, 2]
    assert not result.isError


def test_a_screen_that_turns_into_something_denied_is_denied(bench) -> None:
    """The page swaps what is under the pointer while the human reads."""
    bench.context = DELETE
    asked = []

    async def ask(question):
        asked.append(question)
        bench.context = replace(DELETE, pointed=Element("button", "Show recovery key"))
        return APPROVE

    result = run(bench.gated(Gate(load_policy(), Callback(ask))), CLICK)
    assert len(asked) == 1
    assert result.isError
    assert not bench.events


def test_a_screen_that_never_rests_is_refused(bench) -> None:
    bench.context = DELETE

    async def ask(question):
        bench.pixels = bench.pixels + 1
        return APPROVE

    result = run(bench.gated(Gate(load_policy(), Callback(ask))), CLICK)
    assert "changed under the question" in words(result)
    assert not bench.events


def test_a_blinking_caret_is_no_change(bench) -> None:
    bench.context = DELETE

    async def ask(question):
        bench.pixels = bench.pixels.copy()
        bench.pixels[30:44, 50:52] = 255
        return APPROVE

    assert not run(bench.gated(Gate(load_policy(), Callback(ask))), CLICK).isError


def test_an_edit_is_done_instead_and_judged_first(bench) -> None:
    bench.context = DELETE
    g = gate(Answer("edit", "here", {"action": "click", "x": 1, "y": 1}))
    result = run(bench.gated(g), CLICK)
    assert ("point", 1, 1, 1) in bench.events
    assert "Done instead" in words(result)
    bench.events.clear()
    bench.context = replace(DELETE, focused=Element("textbox", "Terminal"))
    bad = Answer("edit", "", {"action": "type", "text": "sudo rm -rf /"})
    assert run(bench.gated(gate(bad)), CLICK).isError
    assert run(bench.gated(gate(Answer("edit", "", {"action": "dance"}))), CLICK).isError
    assert not bench.events


def test_approving_all_alike_covers_the_same_and_nothing_else(bench) -> None:
    g = gate(Answer("approve_alike"))
    tool = bench.gated(g)
    bench.context = DELETE
    assert not run(tool, CLICK).isError
    assert not run(tool, CLICK).isError
    bench.context = replace(DELETE, pointed=Element("button", "Delete account"))
    assert run(tool, CLICK).isError
    bench.context = DELETE
    assert run(bench.gated(g), CLICK).isError  # another episode
    assert len(g.confirmer.asked) == 3


def test_questions_of_many_episodes_come_one_at_a_time(bench) -> None:
    bench.context = DELETE
    open_now, most = 0, 0

    async def ask(question):
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0)
        open_now -= 1
        return APPROVE

    g = Gate(load_policy(), Callback(ask))

    async def all_of_them():
        tools = [bench.gated(g, episode=str(k)) for k in range(6)]
        return await asyncio.gather(*(tool.execute(CLICK) for tool in tools))

    assert not any(result.isError for result in asyncio.run(all_of_them()))
    assert most == 1


def test_a_menu_that_was_opened_hides_what_is_clicked_next(bench) -> None:
    bench.context = PLAIN
    tool = bench.gated(gate(APPROVE))
    run(tool, CLICK | {"button": "right"})
    result = run(tool, CLICK)
    assert result.isError
    assert "menu" in words(result)


def test_the_address_bar_is_remembered_between_calls(bench) -> None:
    tool = bench.gated(gate(APPROVE))
    run(tool, {"action": "press", "keys": ["ctrl+l"]})
    run(tool, {"action": "type", "text": "evil.exa"})
    result = run(tool, {"action": "type", "text": "mple\n"})
    assert "evil.example" in words(result)
    assert tool.judged[-1].outcome == "rejected"


def test_a_desktop_that_cannot_be_asked_is_unknown(bench) -> None:
    async def broken(at, to):
        raise RuntimeError("no")

    g = gate()
    tool = g.on(bench.gated(g).inner, looker=broken)
    assert run(tool, CLICK).isError
    unregistered = g.on(tool.inner)
    assert "another process" in words(run(unregistered, CLICK))


def test_typed_secrets_are_in_no_record(bench, tmp_path) -> None:
    bench.context = replace(PLAIN, focused=Element("textbox", "Password", "password"))
    log = AuditLog(tmp_path / "audit.jsonl")
    tool = bench.gated(gate(APPROVE, audit=log))
    run(tool, {"action": "type", "text": "correct horse"})
    text = (tmp_path / "audit.jsonl").read_text()
    assert "correct horse" not in text + repr(tool.judged)
    assert "type_secret" in text
    assert verify(log.path).broken is None


@pytest.mark.parametrize("limit", [0, -1, float("inf"), float("nan")])
def test_a_limit_is_a_positive_time(limit) -> None:
    with pytest.raises(Exception, match="positive"):
        Gate(load_policy(), limit_s=limit)
