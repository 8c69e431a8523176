"""The grounding report as one self-contained page: bars with intervals, then the misses."""

from html import escape
from typing import TYPE_CHECKING

from cua_lab.viz.page import page

if TYPE_CHECKING:
    from cua_lab.dataset.evaluation import GroundingReport, Outcome
    from cua_lab.stats import Rate

MOST_MISSES = 100
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .3rem .6rem; text-align: left; }
th.n, td.n { text-align: right; }
td.n { font-variant-numeric: tabular-nums; white-space: nowrap; }
tr + tr td { border-top: 1px solid #8884; } svg { display: block; width: 100%; height: 18px; }
.track { fill: #8883; } .bar { fill: #2f6fd6; } .span { stroke: currentColor; stroke-width: 2; }
.big { font-size: 2.2rem; font-weight: 600; }
"""


def render(report: "GroundingReport", title: str) -> str:
    """The page's HTML."""
    overall = report.overall
    share = "no sample with a box" if overall.rate is None else f"{overall.rate:.1%}"
    facts = f"{overall.hits} of {overall.count} clicks inside the box"
    if overall.rate is not None:
        facts += f"; 95% interval {overall.low:.1%} to {overall.high:.1%}"
    notes = f"{report.invalid} answers held no point. {report.unmeasured} samples have no box."
    if report.median_distance is not None:
        notes += f" Median distance to the centre: {report.median_distance:.3f} of the screen."
    body = f"<h1>{escape(title)}</h1><p class='big'>{share}</p><p>{facts}. {notes}</p>"
    for name, rates in (
        ("By difficulty", report.by_difficulty),
        ("By size of the target", report.by_size),
        ("By type", report.by_type),
    ):
        body += f"<h2>{name}</h2>" + _table(rates)
    return page(title=title, body=body + _misses(report.outcomes), style=_STYLE)


def _table(rates: "dict[str, Rate]") -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td style='width:45%'>{_bar(rate)}</td>"
        f"<td class='n'>{rate.rate:.1%}</td><td class='n'>{rate.low:.1%} - {rate.high:.1%}</td>"
        f"<td class='n'>{rate.hits} / {rate.count}</td></tr>"
        for name, rate in rates.items()
    )
    head = (
        "<tr><th></th><th></th>"
        "<th class='n'>inside</th><th class='n'>95%</th><th class='n'>of</th></tr>"
    )
    return f"<table>{head}{rows}</table>"


def _bar(rate: "Rate") -> str:
    value, low, high = (100 * (part or 0.0) for part in (rate.rate, rate.low, rate.high))
    return (
        "<svg viewBox='0 0 100 18' preserveAspectRatio='none' role='img'"
        f" aria-label='{value:.0f} percent'>"
        "<rect class='track' width='100' height='18'/>"
        f"<rect class='bar' width='{value:.2f}' height='18'/>"
        f"<line class='span' vector-effect='non-scaling-stroke' x1='{low:.2f}' x2='{high:.2f}'"
        " y1='9' y2='9'/></svg>"
    )


def _misses(outcomes: "tuple[Outcome, ...]") -> str:
    missed = [outcome for outcome in outcomes if not outcome.hit]
    if not missed:
        return ""
    rows = "".join(
        f"<tr><td>{escape(outcome.instruction)}</td><td>{escape(outcome.screenshot)}</td>"
        f"<td>{outcome.difficulty}</td><td class='n'>{_point(outcome)}</td></tr>"
        for outcome in missed[:MOST_MISSES]
    )
    head = (
        "<tr><th>instruction</th><th>screenshot</th><th>difficulty</th>"
        "<th class='n'>clicked</th></tr>"
    )
    shown = f"{min(len(missed), MOST_MISSES)} of {len(missed)}"
    return f"<h2>Misses ({shown})</h2><table>{head}{rows}</table>"


def _point(outcome: "Outcome") -> str:
    point = outcome.predicted
    return "nowhere" if point is None else f"{point[0]:.3f}, {point[1]:.3f}"
