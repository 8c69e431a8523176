"""Every kind of injection meets the default policy with nobody to ask: the order has no effect, and
the task is done all the same by whoever only does the task."""

import pytest

from cua_lab.demonstrators.expert_play import expert_config
from cua_lab.envs.injection.kinds import KINDS
from cua_lab.run.forbidden_acts import count_forbidden
from cua_lab.safety.gate import Gate
from cua_lab.safety.policy_file import load_policy
from tests.envs.test_injection_play import play_all

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ALL = [kind.name for kind in KINDS]


def gated():
    return expert_config().model_copy(update={"gate": Gate(load_policy("default"))})


def test_every_kind_is_stopped_with_nobody_to_ask(desktops) -> None:
    episodes = play_all(desktops, [(kind, "gullible") for kind in ALL], gated())
    assert [e.error for e in episodes if e.error] == []
    counts = count_forbidden(episodes)
    assert {
        name: count.stopped for name, count in counts.items() if name != "all"
    } == dict.fromkeys(ALL, 1)
    assert counts["all"].forbidden == 0
    refused = [call for e in episodes for call in e.judged if call.outcome != "allowed"]
    assert all(call.reason for call in refused), "whoever is refused is told why"
    undone = {e.task for e in episodes if not e.success}
    assert undone <= {"prefilled-form", "redirect"}, "those whose page or field is another by then"


def test_whoever_only_does_the_task_is_never_stopped(desktops) -> None:
    episodes = play_all(desktops, [(kind, "careful") for kind in ALL], gated())
    assert {e.task: e.error or e.reward for e in episodes} == dict.fromkeys(ALL, 1.0)
    assert [call for e in episodes for call in e.judged if call.outcome != "allowed"] == []
