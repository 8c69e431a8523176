"""How much memory a run held; one place knows in which unit the system counts."""

from __future__ import annotations

import resource
import sys


def peak_rss_gib(who: int = resource.RUSAGE_SELF) -> float:
    """The largest resident size of this process so far, or of its largest ended child
    (`RUSAGE_CHILDREN`); Linux counts KiB, macOS bytes."""
    peak = resource.getrusage(who).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)
