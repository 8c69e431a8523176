"""A gate in front of an episode: it goes on after a refusal, and the record says what happened."""

import asyncio

import pytest

from cua_lab.computer.config import ToolConfig
from cua_lab.envs.lab.env import build
from cua_lab.play.agent import LabAgentConfig
from cua_lab.play.episode import play
from cua_lab.play.scripted import ScriptedTransport, in_turn
from cua_lab.run.gate_record import gate_record
from cua_lab.run.measure import describe_result, measure
from cua_lab.run.task_evaluation import summarise
from cua_lab.safety.audit import AuditLog, verify
from cua_lab.safety.confirmers import Answer, Scripted
from cua_lab.safety.gate import Gate
from cua_lab.safety.judged import Penalty
from cua_lab.safety.policy_file import load_policy
from cua_lab.viz.frames import frames_of


def played(gate, *calls, template="todo-create", **args):
    from hud.eval import LocalRuntime, Task

    task = Task(
        env="lab", id=template, args={"seed": 1, "turns": len(calls), **args}, slug=template
    )
    config = LabAgentConfig(tool=ToolConfig(pace_ms=0), gate=gate, max_steps=len(calls))
    return asyncio.run(
        play(
            task, config, ScriptedTransport(in_turn(list(calls))), runtime=LocalRuntime(build),
            id="e1", group="g1",
        )
    )  # fmt: skip


TYPE = {"action": "type", "text": "Buy milk\n"}


def delete_at():
    """Where the first row's delete button is."""
    from cua_lab.desktop.apps import Todo

    box = Todo(count=2, seed=1).boxes["delete:0"]
    return {"action": "click", "x": (box.left + box.right) // 2, "y": (box.top + box.bottom) // 2}


def test_a_refused_call_is_answered_and_the_episode_goes_on() -> None:
    gate = Gate(load_policy("lab"), penalty=Penalty(risky=0.1, refused=0.25))
    episode = played(gate, delete_at(), TYPE, text="Buy milk")
    assert episode.error is None
    assert episode.success  # nothing was deleted, and the item was added
    refused, typed = episode.actions
    assert not refused.valid
    assert "Not done (rejected)" in refused.text
    assert "Delete" in refused.text
    assert typed.valid
    assert (refused.refused, typed.refused) == (True, False)
    assert (refused.saw, typed.saw) == (0, 0), "a refusal brings no screen"
    assert [f.label[:5] for f in frames_of(episode)] == ["click", "type ", ""]
    assert measure([episode]).valid_tool_calls.mean == 1.0
    assert summarise([episode]).overall.valid_tool_calls.mean == 1.0
    assert [call.outcome for call in episode.judged] == ["rejected", "allowed"]
    assert episode.penalty == pytest.approx(0.35)
    assert episode.trained_reward == pytest.approx(episode.reward - 0.35)
    record = gate_record([episode])
    assert (record["risky_proposed"], record["risky_rejected"]) == (1, 1)
    assert record["penalty_mean"] == pytest.approx(0.35)


def test_a_policy_whose_calls_are_all_refused_acts_and_one_whose_calls_are_wrong_does_not() -> None:
    """A gated run's report said "it does not act" of the first."""
    stopped = measure([played(Gate(load_policy("lab")), delete_at(), text="x")])
    wrong = {"action": "click", "x": 3}
    mute = measure([played(Gate(load_policy("lab")), wrong, text="x")])
    assert (stopped.valid_tool_calls.mean, mute.valid_tool_calls.mean) == (1.0, 0.0)
    assert "does not act" not in describe_result(stopped, stopped, {})
    assert "does not act" in describe_result(mute, mute, {})


def test_a_confirmed_call_is_done() -> None:
    gate = Gate(load_policy("lab"), Scripted([Answer("approve")]))
    episode = played(gate, delete_at(), TYPE, text="Buy milk")
    assert not episode.success  # an item is gone
    # The focus is on the next delete button now, which the space of the text would press.
    assert [call.outcome for call in episode.judged] == ["approved", "rejected"]


def test_without_a_gate_there_are_no_figures() -> None:
    episode = played(None, TYPE, text="Buy milk")
    assert episode.judged is None
    assert gate_record([episode]) == {}
    assert episode.trained_reward == episode.reward


def test_what_was_typed_in_secret_is_in_no_record(tmp_path) -> None:
    """A token is typed: the app gets it, the records do not."""
    token = "ghp_" + "a1B2c3" * 5
    gate = Gate(load_policy("lab"), Scripted([Answer("approve")]),
                audit=AuditLog(tmp_path / "audit.jsonl"))  # fmt: skip
    episode = played(gate, {"action": "type", "text": f"{token}\n"}, text="x")
    assert token in repr(episode.info)  # typed it was
    assert token not in repr([episode.actions, episode.judged])
    assert token not in repr(episode).replace(repr(episode.info), "")
    assert token not in (tmp_path / "audit.jsonl").read_text()
    assert verify(tmp_path / "audit.jsonl").broken is None
