"""The gate's section of a report: counts as the steps have them, and none without a gate."""

from pathlib import Path

from cua_lab.records import make_step
from cua_lab.viz.report_gate import gate_section
from cua_lab.viz.runfiles import Run


def run_of(*records):
    steps = [make_step({"task": "t", "phase": "grpo", "stage": "s", **r}) for r in records]
    return Run(
        path=Path("run"), steps=tuple(steps), episodes=(), summary=None, config="", viewer=None
    )


def test_a_run_without_a_gate_has_no_section() -> None:
    assert gate_section(run_of({"step": 1})) is None


def test_counts_add_up_over_steps() -> None:
    gate = {"risky_confirmed": 0, "risky_denied": 1}
    section = gate_section(
        run_of(
            {"step": 1, "risky_proposed": 5, "risky_rejected": 4, "penalty_mean": 0.5, **gate},
            {"step": 2, "risky_proposed": 2, "risky_rejected": 1, "penalty_mean": 0.1, **gate},
            {"step": 3},
        )
    )
    assert section.totals.rows == (("t", "7", "0", "5", "2", "0.300"),)
    assert [row[1] for row in section.steps.rows] == ["5", "2"]
