"""Known weaknesses: in the code (bandit) and in the pinned versions (pip-audit).

    cua_lab, tools ──bandit──▶ findings ──minus security_allowed.toml──▶ faults
    constraints.txt ──pip-audit──▶ advisories ──▶ faults

Invariant: the list of exceptions has a reason for each and holds none that is not found any more.
What cannot be run says so and why, and is no fault: a tool that is not installed, advisories that
cannot be reached.

    python tools/security.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = ROOT / "tools" / "security_allowed.toml"
LIMIT_S = 120
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A tool of this environment."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def missing(done: subprocess.CompletedProcess[str], name: str) -> str | None:
    """Why a tool did not run, if it is not there."""
    if "No module named" not in done.stderr:
        return None
    return f"SKIPPED: {name} is not installed here; `pip install -e '.[test]'` installs it"


def weak_code(run: Run = run, allowed: Path = ALLOWED) -> tuple[list[str], str]:
    """The faults that bandit finds at medium severity and above, and one line on what was done."""
    done = run(
        ["bandit", "-q", "-r", "cua_lab", "tools", "-f", "json", "--severity-level", "medium"]
    )
    if why := missing(done, "bandit"):
        return [], why
    report = json.loads(done.stdout[done.stdout.index("{") :])
    reasons: dict[str, str] = tomllib.loads(allowed.read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {}
    for result in report["results"]:
        key = f"{result['test_id']} {Path(result['filename']).as_posix()}"
        where = f"{result['filename']}:{result['line_number']}: {result['issue_text']}"
        found.setdefault(key, []).append(where)
    faults = [f"{key}: {w}" for key, where in found.items() if key not in reasons for w in where]
    faults += [
        f"{ALLOWED.name}: {key!r} is not found any more" for key in reasons if key not in found
    ]
    lines = report["metrics"]["_totals"]["loc"]
    kept = sum(map(len, found.values()))
    return faults, f"bandit: {lines} lines, {kept} findings, of which {len(faults)} are faults"


def weak_versions(run: Run = run) -> tuple[list[str], str]:
    """Advisories about the pinned versions, and one line on what was done."""
    command = ["pip_audit", "-r", "constraints.txt", "--no-deps", "--disable-pip", "-f", "json"]
    try:
        done = run([*command, "--progress-spinner", "off"])
    except subprocess.TimeoutExpired:
        return [], f"SKIPPED: pip-audit reached no advisories within {LIMIT_S} s; is this offline?"
    if why := missing(done, "pip-audit"):
        return [], why
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        words = (done.stderr.strip().splitlines() or ["no words"])[-1]
        return [], f"SKIPPED: pip-audit reached no advisories: {words[:200]}"
    audited = [package for package in packages if "skip_reason" not in package]
    if not audited:
        why = packages[0]["skip_reason"] if packages else "nothing is pinned"
        return [], f"SKIPPED: pip-audit could look nothing up: {why[:200]}"
    faults = [
        f"{package['name']} {package['version']}: {advisory['id']}, fixed in"
        f" {', '.join(advisory['fix_versions']) or 'no version'}"
        for package in audited
        for advisory in package["vulns"]
    ]
    return faults, f"pip-audit: {len(audited)} of {len(packages)} pins, {len(faults)} advisories"


def main() -> int:
    """Print what was found; 1 where something is wrong."""
    status = 0
    for look in (weak_code, weak_versions):
        faults, words = look()
        print(*faults, words, sep="\n")
        status |= bool(faults)
    return status


if __name__ == "__main__":
    sys.exit(main())
