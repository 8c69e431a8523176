"""Whether a screen is still the one that somebody was asked about.

Invariant: two frames are the same only if all pixels agree but those of a blinking caret: one thin
upright bar, no wider than `CARET_PX` and no taller than a line of text.
"""

from __future__ import annotations

import numpy as np

CARET_PX = (3, 48)
"""Width and height of the largest caret."""


def same_frame(before: np.ndarray, now: np.ndarray) -> bool:
    """Compare two frames, (height, width, 3) RGB."""
    if before.shape != now.shape:
        return False
    rows, columns = np.nonzero((before != now).any(axis=2))
    if not len(rows):
        return True
    width = int(columns.max() - columns.min()) + 1
    height = int(rows.max() - rows.min()) + 1
    return width <= CARET_PX[0] and height <= CARET_PX[1]
