"""The numbers of the machinery in a run's report: exactness, seconds, tokens, machine, versions.

Invariant: shares are of the work and not of the wall time, and a run whose account of tokens does
not close is not said to close.
"""

from __future__ import annotations

from dataclasses import dataclass

from cua_lab.records import Summary
from cua_lab.viz.report_parts import Table, flat, nested, number, table


@dataclass(frozen=True, slots=True)
class Numbers:
    """The tables of one section."""

    exactness: Table
    seconds: Table | None
    speeds: Table
    episodes: Table
    ledger: Table
    """Where every sampled token went."""
    closes: bool
    """Whether that account adds up."""
    divergences: Table


def numbers(summary: Summary) -> Numbers:
    """What a summary says of the machinery."""
    exact = [
        ["largest gap in log-probability, engine against trainer",
         number(summary.logprob_gap_max, exponent=True)],
        ["largest |ratio − 1| at the first update of a batch",
         number(summary.first_ratio_max_error, exponent=True)],
    ]  # fmt: skip
    return Numbers(
        exactness=table(["exactness", ""], exact),
        seconds=_seconds(summary),
        speeds=nested("tokens per second", summary.tokens_per_s),
        episodes=nested("episodes", summary.episodes),
        ledger=nested("token ledger", summary.tokens),
        closes=_closes(summary),
        divergences=nested("divergences", summary.divergences),
    )


def _closes(summary: Summary) -> bool:
    """Whether trained, masked, resynced and dropped tokens are all that were sampled."""
    tokens = summary.tokens
    parts = [value for name, value in flat(tokens) if name not in ("sampled", "context")]
    return "sampled" in tokens and sum(parts) == tokens["sampled"]


def _seconds(summary: Summary) -> Table | None:
    """Shares of the work: parts of two processes overlap, and of the wall time they would be more
    than all."""
    parts = {name: value for name, value in summary.seconds.items() if name != "total"}
    work, total = sum(parts.values()), summary.seconds.get("total")
    rows = [
        [name, number(value, "s", 1), f"{100 * value / work:.0f} %" if work else None]
        for name, value in parts.items()
    ]
    if total is not None:
        beside = ": parts ran side by side" if work > total * 1.01 else ""
        rows.append([f"wall time{beside}", number(total, "s", 1), ""])
    return table(["seconds per part", "", "share of the work"], rows) if rows else None


def origin(summary: Summary) -> tuple[Table, ...]:
    """Where a run comes from: its machine and its versions, those that are known."""
    return tuple(
        table([head, ""], [[name, str(value)] for name, value in facts.items()])
        for head, facts in (("machine", summary.machine), ("versions", summary.versions))
        if facts
    )
