"""docs/reliability.md: what was done to the lab, what its user sees, what is lost, how often tried.

    RELIABILITY=docs/reliability.json pytest tests/...    the suite counts what it tried
    python tools/reliability.py --write                   the page, from the counts

Invariant: each number on the page was counted by a test that passed, and what no session has
counted says "not run yet".
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COUNTS = ROOT / "docs" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of fault."""

    key: str
    """What tests count under."""
    fault: str
    injected: str
    seen: str
    lost: str
    tests: str
    """Below `tests/`."""


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that belong together."""

    title: str
    rows: tuple[Row, ...]


SECTIONS = (
    Section(
        "A run is killed",
        (
            Row(
                "kill-each-kind",
                "SIGKILL before or after a write",
                "the process dies at each kind of rename, append, cut and removal in turn",
                "`--resume` goes on from the last checkpoint",
                f"{NOTHING}: the same bits",
                "run/test_kill.py",
            ),
            Row(
                "kill-every-point",
                "SIGKILL at every single write of a run",
                "one run for each fault point; by night",
                "`--resume` goes on",
                f"{NOTHING}: the same bits",
                "run/test_kill.py",
            ),
            Row(
                "kill-random",
                "SIGKILL by the kernel",
                "at random moments, up to 20 times a run; by night",
                "`--resume` goes on",
                f"{NOTHING}: the same bits",
                "run/test_kill.py",
            ),
            Row(
                "full-disk",
                "a full disk",
                "ENOSPC at records, checkpoint, progress and viewer",
                "the system's words; `--resume` once there is room",
                NOTHING,
                "run/test_kill.py",
            ),
        ),
    ),
    Section(
        "One episode meets a fault",
        (
            Row(
                "fault-transport",
                "the server refuses, is silent, or answers something else",
                "at the HTTP transport of one episode of a group",
                "one failed episode, its cause counted and shown as a film strip",
                "that episode; siblings keep every token",
                "run/test_injected_faults.py",
            ),
            Row(
                "fault-rfb",
                "the screen hangs up, is silent, sends garbage or announces gigabytes",
                "an RFB server in the place of the episode's own",
                "the same",
                "that episode",
                "run/test_injected_faults.py",
            ),
            Row(
                "fault-grader",
                "the grader raises, hangs, or grades with NaN, text or nothing",
                "at the end of the template",
                "the same",
                "that episode",
                "run/test_injected_faults.py",
            ),
            Row(
                "fault-env",
                "the env does not start, or does not stop",
                "in HUD's own hooks",
                "the same",
                "that episode, or nothing if it was graded",
                "run/test_injected_faults.py",
            ),
            Row(
                "fault-tool",
                "the tool has a bug, no memory, or a dead screen",
                "in place of the call's execution",
                "the same: never a bad move",
                "that episode",
                "run/test_injected_faults.py",
            ),
            Row(
                "fault-all",
                "every episode fails",
                "at the grader, from the start or from a step on",
                "the run stops with the causes counted and says how to go on",
                NOTHING,
                "run/test_injected_faults.py",
            ),
        ),
    ),
    Section(
        "Load",
        (
            Row(
                "load-embedded",
                "many episodes in one process",
                "1,000 on the embedded desktop; by night",
                "descriptors, tasks, threads, processes and temporary folders stay what they were",
                NOTHING,
                "run/test_load.py",
            ),
            Row(
                "load-browser",
                "many episodes on real browsers",
                "200 on Chromium; by night",
                "the same",
                NOTHING,
                "run/test_load.py",
            ),
            Row(
                "load-serve",
                "200 clients at once",
                "HTTP requests whose answer can only be one token",
                "each gets its own tokens, or 503 and retry-after",
                NOTHING,
                "serving/test_load.py",
            ),
        ),
    ),
    Section(
        "Hostile input",
        (
            Row(
                "fuzz-rfb-server",
                "bytes to the RFB server",
                "damaged conversations of a client",
                "that connection ends; others are served",
                NOTHING,
                "test_fuzz.py",
            ),
            Row(
                "fuzz-rfb-client",
                "bytes from an RFB server",
                "damaged handshakes and frames",
                "a dead screen",
                "that episode",
                "test_fuzz.py",
            ),
            Row(
                "fuzz-arguments",
                "arguments of a tool call",
                "JSON of any shape",
                "an error for the policy; nothing is sent",
                NOTHING,
                "test_fuzz.py",
            ),
            Row(
                "fuzz-shim",
                "answers of an inference server",
                "a recorded answer, damaged or altered",
                "exact ids, or one line",
                "that episode",
                "test_fuzz.py",
            ),
            Row(
                "fuzz-parser",
                "what a policy says",
                "damaged calls and any text",
                "text and calls",
                NOTHING,
                "test_fuzz.py",
            ),
            Row("fuzz-recipes", "a recipe", "damaged YAML", "one line", NOTHING, "test_fuzz.py"),
            Row(
                "fuzz-viewer",
                "tokens in the viewer, in a real browser",
                "markup, scripts, damaged bytes and hidden characters as tokens, names and titles",
                "the text as it is; nothing runs",
                NOTHING,
                "browser/test_fuzzed_tokens.py",
            ),
            Row(
                "fuzz-rows",
                "rows of public datasets",
                "altered at any depth",
                "set aside with the reason",
                "that row",
                "test_fuzz.py",
            ),
            Row(
                "fuzz-records",
                "a run's record files",
                "damaged lines",
                "one line",
                NOTHING,
                "test_fuzz.py",
            ),
            Row(
                "fuzz-checkpoints",
                "weights and manifests",
                "damaged files",
                "one line; the weights in use stay",
                NOTHING,
                "test_fuzz.py",
            ),
        ),
    ),
)
INTRO = """\
# Reliability

What was done to the lab on purpose, what its user sees then, and what is lost. The numbers were
counted by the suite as it ran (`{counts}`); "by night" is `pytest -m nightly`, and for the fuzz
targets `HYPOTHESIS_PROFILE=fuzz`, which goes on for ten minutes and keeps its corpus. What no
counted session has run says so. This page is written by `python tools/reliability.py --write`.
"""


def page(counts: dict[str, dict[str, float]]) -> str:
    """The whole page."""
    parts = [INTRO.format(counts=COUNTS.relative_to(ROOT))]
    for section in SECTIONS:
        parts.append(f"\n## {section.title}\n\n")
        parts.append("| fault | how it is injected | what you see | what is lost | tried |\n")
        parts.append("|---|---|---|---|---|\n")
        for row in section.rows:
            tried = told(counts.get(row.key))
            name = f"{row.fault} ([test](../tests/{row.tests}))"
            parts.append(f"| {name} | {row.injected} | {row.seen} | {row.lost} | {tried} |\n")
    return "".join(parts)


def told(counted: dict[str, float] | None) -> str:
    """`58 kills`; slopes as they were measured."""
    if not counted:
        return "not run yet"
    return ", ".join(
        f"{number} MiB per 100 episodes" if name.startswith("slope") else f"{number:,} {name}"
        for name, number in sorted(counted.items())
    )


def read_counts() -> dict[str, dict[str, float]]:
    """What the suite has counted."""
    counts: dict[str, dict[str, float]] = json.loads(COUNTS.read_text(encoding="utf-8"))
    return counts


if __name__ == "__main__":
    text = page(read_counts())
    if "--write" in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    print(text)
