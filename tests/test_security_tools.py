"""`tools/security.py` finds what it should, and says what it could not look at."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools import security


def answering(stdout: Any = "", stderr: str = "") -> security.Run:
    text = stdout if isinstance(stdout, str) else json.dumps(stdout)
    return lambda command: subprocess.CompletedProcess(command, 1, text, stderr)


def bandit(*findings: tuple[str, str]) -> Any:
    results = [
        {"test_id": test, "filename": file, "line_number": 3, "issue_text": "bad"}
        for test, file in findings
    ]
    return {"results": results, "metrics": {"_totals": {"loc": 10}}}


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    path = tmp_path / "allowed.toml"
    path.write_text('"B1 a.py" = "it is meant"\n')
    return path


def test_a_finding_is_a_fault_unless_there_is_a_reason(allowed: Path) -> None:
    found = answering(bandit(("B1", "a.py"), ("B1", "b.py"), ("B2", "a.py")))
    faults, words = security.weak_code(found, allowed)
    assert faults == ["B1 b.py: b.py:3: bad", "B2 a.py: a.py:3: bad"]
    assert words == "bandit: 10 lines, 3 findings, of which 2 are faults"


def test_a_reason_for_what_is_gone_is_a_fault(allowed: Path) -> None:
    (fault,) = security.weak_code(answering(bandit()), allowed)[0]
    assert "'B1 a.py' is not found any more" in fault


def test_an_advisory_is_a_fault() -> None:
    vuln = {"id": "PYSEC-1", "fix_versions": ["2"]}
    packages = [
        {"name": "a", "version": "1", "vulns": [vuln]},
        {"name": "b", "version": "1", "vulns": []},
        {"name": "c", "skip_reason": "unknown"},
    ]
    faults, words = security.weak_versions(answering({"dependencies": packages}))
    assert faults == ["a 1: PYSEC-1, fixed in 2"]
    assert words == "pip-audit: 2 of 3 pins, 1 advisories"


def slow(command: Any) -> Any:
    raise subprocess.TimeoutExpired(command, 120)


@pytest.mark.parametrize(
    ("look", "run", "why"),
    [
        (security.weak_code, answering(stderr="No module named bandit"), "bandit is not installed"),
        (security.weak_versions, answering(stderr="No module named x"), "pip-audit is not inst"),
        (security.weak_versions, answering(stderr="x\nConnectionError: no route"), "no route"),
        (security.weak_versions, slow, "offline"),
        (
            security.weak_versions,
            answering({"dependencies": [{"name": "a", "skip_reason": "not found"}]}),
            "not found",
        ),
    ],
)
def test_what_cannot_be_looked_at_is_said_and_no_fault(look: Any, run: Any, why: str) -> None:
    faults, words = look(run)
    assert faults == []
    assert words.startswith("SKIPPED: ")
    assert why in words
