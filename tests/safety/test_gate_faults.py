"""Whatever a confirmer does, a `deny` and a `confirm` without a yes never reach the screen."""

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cua_lab.safety.confirmers import Answer, Question
from cua_lab.safety.effects import Element
from cua_lab.safety.gate import Gate
from cua_lab.safety.policy_file import load_policy
from tests.safety.conftest import DELETE, PLAIN, SHELL, Bench

POLICY = load_policy()
FORGED = object.__new__(Answer)
object.__setattr__(FORGED, "verdict", "yes")
object.__setattr__(FORGED, "why", "")
object.__setattr__(FORGED, "call", None)
NO_CALL = object.__new__(Answer)
object.__setattr__(NO_CALL, "verdict", "edit")
object.__setattr__(NO_CALL, "why", "")
object.__setattr__(NO_CALL, "call", None)


class Unreadable:
    """Says that it is an `Answer` and has nothing of one."""

    __class__ = Answer


class Truthy(Answer):
    """Not an `Answer` of ours, though it says so."""


NONSENSE = [None, True, 1, "approve", "yes", {"verdict": "approve"}, ["approve"], Answer, FORGED,
            NO_CALL, Unreadable(), Truthy("approve"), b"approve", Exception("approve")]  # fmt: skip
REAL = [Answer("approve"), Answer("approve_alike"), Answer("reject"),
        Answer("edit", "", {"action": "click", "x": 1, "y": 1})]  # fmt: skip
FAULTS = st.one_of(
    st.tuples(st.just("return"), st.sampled_from(NONSENSE)),
    st.tuples(
        st.just("raise"), st.sampled_from([ValueError, TimeoutError, OSError, StopIteration])
    ),
    st.tuples(st.just("hang"), st.just(None)),
    st.tuples(st.just("stubborn"), st.just(None)),
    st.tuples(st.just("cancel"), st.just(None)),
    st.tuples(st.just("plain"), st.sampled_from(NONSENSE)),
)
CONTEXTS = st.sampled_from([
    ("confirm", DELETE, {"action": "click", "x": 10, "y": 20}),
    ("deny", SHELL, {"action": "type", "text": "sudo rm -rf /"}),
    ("deny", PLAIN, {"action": "press", "keys": ["alt+f4"]}),
    ("confirm", replace(PLAIN, known=False), {"action": "press", "keys": ["enter"]}),
    ("confirm", replace(PLAIN, focused=Element("textbox", "", "password")),
     {"action": "type", "text": "abcd"}),
])  # fmt: skip


class Faulty:
    """Does one thing after the other."""

    def __init__(self, script) -> None:
        self.script, self.asked = list(script), 0

    def confirm(self, question: Question):
        self.asked += 1
        how, what = self.script.pop(0) if self.script else ("return", None)
        return what if how == "plain" else self._confirm(how, what)

    async def _confirm(self, how, what):
        if how == "raise":
            raise what("no")
        if how == "cancel":
            raise asyncio.CancelledError
        if how == "hang":
            await asyncio.Event().wait()
        while how == "stubborn":
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                return Answer("approve")  # too late
        return what


@given(st.lists(FAULTS, min_size=1, max_size=4), st.lists(CONTEXTS, min_size=1, max_size=4))
def test_no_fault_of_a_confirmer_lets_anything_through(faults, actions) -> None:
    bench, confirmer = Bench(), Faulty(faults)

    async def play():
        tool = bench.gated(Gate(POLICY, confirmer, limit_s=0.002))
        for action, context, arguments in actions:
            bench.context, before = context, confirmer.asked
            result = await tool.execute(dict(arguments))
            assert result.isError
            assert confirmer.asked == before + (action == "confirm")
        assert [j.outcome for j in tool.judged] == [
            "denied" if action == "deny" else "rejected" for action, *_ in actions
        ]

    asyncio.run(play())
    assert not bench.events


@given(st.lists(st.one_of(FAULTS, st.tuples(st.just("return"), st.sampled_from(REAL))),
                min_size=1, max_size=5),
       st.lists(CONTEXTS, min_size=1, max_size=5))  # fmt: skip
def test_a_denied_action_passes_among_no_answers(script, actions) -> None:
    """Real answers stand among the faults: a yes to one question is a yes to no other."""
    bench, confirmer = Bench(), Faulty(script)

    async def play():
        tool = bench.gated(Gate(POLICY, confirmer, limit_s=0.002))
        for action, context, arguments in actions:
            bench.context, left, asked = context, list(confirmer.script), confirmer.asked
            bench.events.clear()
            await tool.execute(dict(arguments))
            if action == "deny":
                assert not bench.events
            elif bench.events and confirmer.asked > asked:
                assert left[0] in [("return", answer) for answer in REAL]
                assert left[0][1].verdict != "reject"
            elif bench.events:  # approved with all alike before
                assert tool.judged[-1].outcome == "approved"

    asyncio.run(play())
