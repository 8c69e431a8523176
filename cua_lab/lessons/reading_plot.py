"""What a policy said of its screens, over a run: read without a mistake, and worth what.

Invariant: a turn is counted where a transcript was due; marks are those of `cua_lab.play.reading`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cua_lab.play.reading import Transcript
from cua_lab.safety.redaction import MARK
from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, DASHES, MARKERS, paper

if TYPE_CHECKING:
    from cua_lab.records import EpisodeRow, Step
MANY = 3
"""From so many misread cells on episodes are counted together."""


def misread_cells(episode: EpisodeRow) -> int | None:
    """Cells that its thoughts have wrong, over all turns; `None` where nothing was to be read.

    Also `None` where digits of a thought were blacked out as a card's: missing is no misreading.
    """
    if any(MARK in t.thought for t in episode.turns):
        return None
    marked = [Transcript(t.thought, t.reading) for t in episode.turns if t.reading is not None]
    return sum(len(transcript.wrong) for transcript in marked) if marked else None


def by_misread(episodes: Iterable[EpisodeRow]) -> dict[int, tuple[int, float]]:
    """Episodes and their share of successes, by how many cells were misread (0, 1, 2, `MANY`)."""
    found: dict[int, list[bool]] = {}
    for episode in episodes:
        wrong = misread_cells(episode)
        if wrong is not None and episode.success is not None:
            found.setdefault(min(wrong, MANY), []).append(episode.success)
    return {wrong: (len(hits), sum(hits) / len(hits)) for wrong, hits in sorted(found.items())}


def erosion_figure(runs: Mapping[str, Sequence[Step]]) -> Picture:
    """Screens read without a mistake, and success, over the steps of GRPO; a line a run."""
    panels = {"screens read without a mistake": "screens_read", "success": "success"}
    with paper():
        figure = Picture(figsize=(10.5, 3.1), layout="constrained")
        for axes, (title, name) in zip(figure.subplots(1, 2), panels.items(), strict=True):
            for k, (label, steps) in enumerate(runs.items()):
                known = [(s.step, v) for s in steps if (v := getattr(s, name)) is not None]
                axes.plot(
                    [step for step, _ in known], [value for _, value in known], label=label,
                    color=COLOURS[k], linestyle=DASHES[k], marker=MARKERS[k], markersize=3.5,
                )  # fmt: skip
            axes.set_title(title)
            axes.set_xlabel("GRPO step")
            axes.set_ylim(-0.03, 1.05)
        figure.axes[0].legend(loc="lower left")
        figure.alt = (
            f"Two panels over GRPO steps, a line each for {', '.join(runs)}: the share of screens"
            " that the policy said without a mistake, and the share of episodes that succeeded."
        )
    return figure
