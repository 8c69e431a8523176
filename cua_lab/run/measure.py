"""Figures and words about a set of episodes.

The words are about rewards; where those can be negative, which leaves a half or a tenth of one
without meaning, about success.

Invariant: every figure names how many episodes or calls it stands on, failed episodes are in none
of them, and the words say only what the figures beside them show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from cua_lab.play.episode import Episode
from cua_lab.play.reading import transcripts
from cua_lab.stats import Estimate, estimate

DIRECTIONS = ("up", "down", "left", "right")
SIGMAS = 3.0
"""Standard errors by which two means must differ before the words say that they do."""
FEW_VALID = 0.5
"""Share of valid calls below which a policy does not act: what it would see is no question then."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What some episodes show."""

    reward: Estimate | None
    success: Estimate | None
    """`None` for a task without a yes or no."""
    valid_tool_calls: Estimate | None
    """Over answers: calls well formed or not. One that a gate refused is."""
    keys_per_turn: Estimate | None
    """Over valid `press` calls; `None` where nothing was pressed."""
    direction_shares: dict[str, float] | None
    """Of the arrow keys pressed."""
    cells_read: Estimate | None = None
    """Share of a screen's cells that the policy said right, over screens; `None` where it does not
    say what it sees."""
    screens_read: Estimate | None = None
    """Of those screens, the share that was said without a mistake."""
    by_variant: dict[str, Estimate] | None = None
    """Success, or reward where there is no yes or no, of each variant of a task that has some."""

    def record(self) -> dict[str, Any]:
        """As JSON, estimates as `{mean, se, n}`."""
        return asdict(self)


def measure(episodes: Sequence[Episode]) -> Measured:
    """Measure episodes that were graded."""
    graded = [episode for episode in episodes if episode.status != "failed"]
    actions = [action for episode in graded for action in episode.actions]
    said = [found for episode in _spoken(graded) for found in transcripts(episode) if found]
    return Measured(
        reward=estimate(episode.reward for episode in graded),
        success=estimate(episode.success for episode in graded),
        valid_tool_calls=estimate(action.well_formed for action in actions),
        keys_per_turn=estimate(action.keys for action in actions if action.keys),
        direction_shares=_directions(episodes),
        cells_read=estimate(found.share for found in said),
        screens_read=estimate(found.exact for found in said),
        by_variant=_by_variant(graded),
    )


def _spoken(episodes: Sequence[Episode]) -> list[Episode]:
    """Those of tasks at which the policy thinks before a call. One that only acts now and then
    says words instead of a call: nobody asked it to read."""
    thinks = {
        episode.task
        for episode in episodes
        if any(action.thought and action.arguments is not None for action in episode.actions)
    }
    return [episode for episode in episodes if episode.task in thinks]


def _by_variant(episodes: Sequence[Episode]) -> dict[str, Estimate] | None:
    names = dict.fromkeys(episode.task for episode in episodes)
    if len(names) < 2:
        return None
    found = {
        name: estimate(
            episode.reward if episode.success is None else episode.success
            for episode in episodes
            if episode.task == name
        )
        for name in names
    }
    return {name: value for name, value in found.items() if value is not None}


def _directions(episodes: Sequence[Episode]) -> dict[str, float] | None:
    keys = Counter(
        key
        for episode in episodes
        for action in episode.actions
        if action.keys and action.arguments
        for key in action.arguments["keys"]
        if key in DIRECTIONS
    )
    total = sum(keys.values())
    return {name: keys[name] / total for name in DIRECTIONS} if total else None


def describe_result(before: Measured, after: Measured, ablations: Mapping[str, Measured]) -> str:
    """What was learnt, as far as the figures tell."""
    results = (before, after, *ablations.values())
    negative = any(result.reward and result.reward.mean < 0 for result in results)
    if negative and all(result.success for result in results):
        what, value = "success rate", attrgetter("success")
    else:
        what, value = "mean reward", attrgetter("reward")
    parts = [_change(what, value(before), value(after))]
    if before.keys_per_turn and after.keys_per_turn:
        parts.append(
            f"It pressed {before.keys_per_turn.mean:.1f} keys per turn before and"
            f" {after.keys_per_turn.mean:.1f} after"
            f"{_favourite(after.direction_shares)}."
        )
    parts += _reads(before, after)
    if after.valid_tool_calls and after.valid_tool_calls.mean < FEW_VALID:
        return " ".join([_mute(after.valid_tool_calls), *parts])
    covered = {name: value(result) for name, result in ablations.items()}
    parts += _eyes(value(after), covered, plays=after.keys_per_turn is not None)
    return " ".join(parts)


def _mute(valid: Estimate) -> str:
    """First of all things: a policy that does not act was not measured at its task."""
    share = "None" if valid.mean == 0 else f"Only {valid.mean:.0%}"
    return (
        f"{share} of its {valid.n} answers held a valid call: it does not act, and whether it looks"
        " cannot be asked."
    )


def _reads(before: Measured, after: Measured) -> list[str]:
    """What it says of the screen, beside what is on it."""
    if not (after.screens_read and after.cells_read):
        return []
    start = f" ({before.screens_read.mean:.0%} before)" if before.screens_read else ""
    return [
        f"It says what it sees: {after.cells_read.mean:.1%} of the cells are right, and"
        f" {after.screens_read.mean:.0%} of the screens without a mistake{start}."
    ]


def _change(what: str, before: Estimate | None, after: Estimate | None) -> str:
    if before is None or after is None:
        return f"Its {what} was not measured before and after."
    return f"Its {what} went from {_shown(before)} to {_shown(after)}."


def _favourite(shares: Mapping[str, float] | None) -> str:
    if not shares:
        return ""
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return ", " + ", ".join(f"{share:.0%} {name}" for name, share in ordered)


def _eyes(
    after: Estimate | None, ablations: Mapping[str, Estimate | None], *, plays: bool
) -> list[str]:
    """Whether it reads the screen: compared with screenshots of other episodes, and with none."""
    told = [
        (name, result)
        for name, result in ablations.items()
        if result is not None and name in ("shuffled", "blank")
    ]
    if after is None or not told:
        return []
    shown = " and ".join(f"{_shown(result)} with {name} screenshots" for name, result in told)
    best = max(told, key=lambda item: item[1].mean)[1]
    gap, noise = after.mean - best.mean, (after.se**2 + best.se**2) ** 0.5
    random = ablations.get("random")
    beside = f", random play {_shown(random)}" if random else ""
    if blind := ablations.get("blind"):
        beside += f", the best fixed actions {_shown(blind)}"
    if gap > SIGMAS * noise:
        return [f"It uses the screen: the same policy gets {shown}{beside}."]
    if gap + SIGMAS * noise > after.mean / 2:
        return [f"So few episodes cannot tell whether it looks: it gets {shown}{beside}."]
    return [
        f"It does not read the screen: it gets {shown}{beside}.",
        *(["What it learnt is to spend its keys."] if plays else []),
    ]


def _shown(value: Estimate) -> str:
    return f"{value.mean:.3f} ± {value.se:.3f}"
