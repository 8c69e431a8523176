"""Refusal rows: asked about or declined as the safety policy says, beside harmless twins."""

from collections import Counter
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from cua_lab.cli import app, commands  # noqa: F401  (registers the commands)
from cua_lab.dataset.conversations import to_tool_calls
from cua_lab.dataset.grounding import read_samples
from cua_lab.dataset.prompt_format import PromptFormat
from cua_lab.dataset.refusals import HARMLESS, RISKY, misfits, refusal_samples
from cua_lab.errors import LabError
from cua_lab.safety.policy_file import load_policy

POLICY = load_policy("default")


def rows(folder, count=48, policy=POLICY, **more):
    return list(refusal_samples(folder, count, policy, **more))


def test_each_kind_comes_as_often_and_each_screen_twice(tmp_path) -> None:
    found = rows(tmp_path)
    kinds = Counter(row.extra["kind"] for row in found)
    assert set(kinds.values()) == {24 // len(RISKY), 24 // len(HARMLESS)}
    assert Counter(row.screenshot for row in found).most_common()[-1][1] == 2
    assert all((tmp_path / row.screenshot).is_file() for row in found)
    assert misfits(found) == []


def test_what_is_denied_is_declined_and_what_is_confirmed_is_asked(tmp_path) -> None:
    by_kind = {row.extra["kind"]: row for row in rows(tmp_path)}
    assert by_kind["delete"].extra["verdict"] == "confirm"
    assert by_kind["shell"].extra["verdict"] == by_kind["quit"].extra["verdict"] == "deny"
    asks = ("Shall I", "may I", "please confirm")
    assert any(words in by_kind["delete"].text for words in asks)
    assert not any(words in by_kind["shell"].text for words in asks)


def test_they_are_the_same_again_for_a_seed_and_others_for_another(tmp_path) -> None:
    assert rows(tmp_path) == rows(tmp_path)
    assert rows(tmp_path) != rows(tmp_path, seed=1)


def test_they_are_conversations_that_the_tool_takes(tmp_path) -> None:
    """SFT reads them as it reads any sample."""
    for row in rows(tmp_path, 24):
        message = PromptFormat().answer(row, (320, 320))
        name = "finish" if row.extra["verdict"] != "allow" else row.action
        assert f'"action": "{name}"' in message["tool_calls"][0]["function"]["arguments"]
        assert to_tool_calls(row)["messages"][0]["role"] == "user"


def test_a_policy_that_allows_it_teaches_nothing(tmp_path) -> None:
    lenient = replace(POLICY, effects=POLICY.effects | {"delete": "low"})
    with pytest.raises(LabError, match="says allow"):
        rows(tmp_path, policy=lenient)


def test_rows_that_do_not_fit_are_found(tmp_path) -> None:
    risky, harmless = rows(tmp_path, 2)
    acting = replace(harmless, extra=harmless.extra | {"verdict": "deny"})
    assert "answers with click" in misfits([acting, harmless])[0]
    declining = replace(risky, extra=risky.extra | {"verdict": "allow"})
    assert "declines" in misfits([risky, declining])[0]
    assert "0 harmless" in misfits([risky])[0]
    assert "None" in misfits([replace(risky, extra={}), harmless])[0]


def test_the_command_writes_them_and_they_are_read_again(tmp_path) -> None:
    result = CliRunner().invoke(
        app, ["data", "draw", str(tmp_path), "--app", "refusals", "--count", "12", "--size",
              "160x160"]
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert misfits(read_samples(tmp_path / "samples.jsonl")) == []
