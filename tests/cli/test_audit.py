"""`cua-lab audit verify`, and what `eval --gate` refuses before anything starts."""

import pytest
from typer.testing import CliRunner

from cua_lab.cli import app, commands  # noqa: F401  (registers the commands)
from cua_lab.errors import LabError
from cua_lab.safety.audit import AuditLog


def verify(path):
    return CliRunner().invoke(app, ["audit", "verify", str(path)])


def test_a_whole_log_and_a_changed_one(tmp_path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    for k in range(3):
        log.append({"episode": f"e{k}"})
    whole = verify(log.path)
    assert whole.exit_code == 0
    assert "3 lines, whole" in whole.output
    log.path.write_text(log.path.read_text().replace('"e1"', '"e7"'))
    changed = verify(log.path)
    assert changed.exit_code == 1
    assert "line 2" in changed.output


def test_a_log_that_is_gone_is_broken_and_one_that_never_was_is_a_mistake(tmp_path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.append({"episode": "e"})
    log.path.unlink()
    assert verify(log.path).exit_code == 1
    assert isinstance(verify(tmp_path / "none.jsonl").exception, LabError)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--env", "lab", "--gate", "strict"], "no safety policy 'strict'"),
        (["--env", "lab", "--gate", "lab", "--confirm", "yes"], "--confirm is 'yes'"),
        (["--env", "lab", "--confirm", "terminal"], "needs a --gate"),
        (["clicks.jsonl", "--gate", "lab"], "--gate stands before the tasks"),
    ],
)
def test_a_gate_that_cannot_be_is_told_before_a_policy_is_loaded(more, said) -> None:
    result = CliRunner().invoke(app, ["eval", "--model", "nowhere", *more])
    assert isinstance(result.exception, LabError)
    assert said in str(result.exception)
