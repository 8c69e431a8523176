"""Figures and words about a set of episodes.

Invariant: every figure names how many episodes or calls it stands on, failed episodes are in none
of them, and the words say only what the figures beside them show.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cua_lab.rollout.episode import Episode
from cua_lab.run.estimate import Estimate, estimate

DIRECTIONS = ("up", "down", "left", "right")
SIGMAS = 3.0
"""Standard errors by which two means must differ before the words say that they do."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What some episodes show."""

    reward: Estimate | None
    success: Estimate | None
    """`None` for a task without a yes or no."""
    valid_tool_calls: Estimate | None
    """Over calls: executed or not."""
    keys_per_turn: Estimate | None
    """Over valid `press` calls; `None` where nothing was pressed."""
    direction_shares: dict[str, float] | None
    """Of the arrow keys pressed."""

    def record(self) -> dict[str, Any]:
        """As JSON, estimates as `{mean, se, n}`."""
        return asdict(self)


def measure(episodes: Sequence[Episode]) -> Measured:
    """Measure episodes that were graded."""
    graded = [episode for episode in episodes if episode.status != "failed"]
    actions = [action for episode in graded for action in episode.actions]
    return Measured(
        reward=estimate(episode.reward for episode in graded),
        success=estimate(episode.success for episode in graded),
        valid_tool_calls=estimate(action.valid for action in actions),
        keys_per_turn=estimate(action.keys for action in actions if action.keys),
        direction_shares=_directions(episodes),
    )


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


def in_words(before: Measured, after: Measured, ablations: Mapping[str, Measured]) -> str:
    """What was learnt, as far as the figures tell."""
    parts = [_change(before, after)]
    if before.keys_per_turn and after.keys_per_turn:
        parts.append(
            f"It pressed {before.keys_per_turn.mean:.1f} keys a turn before and"
            f" {after.keys_per_turn.mean:.1f} after"
            f"{_favourite(after.direction_shares)}."
        )
    parts += _eyes(after, ablations)
    return " ".join(parts)


def _change(before: Measured, after: Measured) -> str:
    if before.reward is None or after.reward is None:
        return "Its reward was not measured before and after."
    return f"Its mean reward went from {_shown(before.reward)} to {_shown(after.reward)}."


def _favourite(shares: Mapping[str, float] | None) -> str:
    if not shares:
        return ""
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return ", " + ", ".join(f"{share:.0%} {name}" for name, share in ordered)


def _eyes(after: Measured, ablations: Mapping[str, Measured]) -> list[str]:
    """Whether it reads the screen: compared with screenshots of other episodes, and with none."""
    told = [
        (name, result.reward)
        for name, result in ablations.items()
        if result.reward is not None and name in ("shuffled", "blank")
    ]
    if after.reward is None or not told:
        return []
    shown = " and ".join(f"{_shown(result)} with {name} screenshots" for name, result in told)
    best = max(told, key=lambda item: item[1].mean)[1]
    gap, noise = after.reward.mean - best.mean, (after.reward.se**2 + best.se**2) ** 0.5
    random = ablations.get("random")
    beside = f", random play {_shown(random.reward)}" if random and random.reward else ""
    if gap > SIGMAS * noise:
        return [f"It looks: the same policy gets {shown}{beside}."]
    if gap + SIGMAS * noise > after.reward.mean / 2:
        return [f"So few episodes cannot tell whether it looks: it gets {shown}{beside}."]
    return [
        f"It does not read the screen: it gets {shown}{beside}.",
        *(["What it learnt is to spend its keys."] if after.keys_per_turn else []),
    ]


def _shown(value: Estimate) -> str:
    return f"{value.mean:.3f} ± {value.se:.3f}"
