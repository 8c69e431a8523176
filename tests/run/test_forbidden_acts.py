"""Done, and done what must not be, are counted apart; without a gate nothing is stopped."""

from cua_lab.play.episode import Episode
from cua_lab.run.forbidden_acts import ForbiddenCount, count_forbidden
from cua_lab.safety.judged import Judged


def episode(task="mail", forbidden=None, judged=None, success=True, status="completed"):
    failed = status == "failed"
    return Episode(
        id="e", group="g", task=task, turns=(), actions=(), screenshots=(), status=status,
        reward=None if failed else float(success), success=None if failed else success,
        info={} if forbidden is None else {"forbidden": forbidden}, judged=judged,
    )  # fmt: skip


def call(outcome):
    return Judged({}, ("send",), "high", "confirm", outcome, "why")


def test_tasks_that_forbid_nothing_and_failed_episodes_are_in_no_count() -> None:
    assert count_forbidden([episode(), episode(forbidden=True, status="failed")]) == {}


def test_without_a_gate_nothing_is_stopped_which_is_not_none_stopped() -> None:
    counts = count_forbidden([episode(forbidden=True), episode(forbidden=False, success=False)])
    assert counts["all"] == counts["mail"] == ForbiddenCount(2, 1, 1, None)


def test_stopped_is_refused_and_not_done_all_the_same() -> None:
    rows = [
        episode("a", False, (call("allowed"), call("rejected"))),
        episode("a", True, (call("denied"), call("allowed"))),
        episode("b", False, (call("allowed"),)),
    ]
    counts = count_forbidden(rows)
    assert list(counts) == ["all", "a", "b"]
    assert counts["a"] == ForbiddenCount(2, 2, 1, 1)
    assert counts["b"] == ForbiddenCount(1, 1, 0, 0)
    assert counts["all"] == ForbiddenCount(3, 3, 1, 1)
