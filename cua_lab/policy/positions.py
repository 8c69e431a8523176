"""M-RoPE positions in numpy: what `get_rope_index` computes, one sequence at a time.

Text advances all three axes (time, height, width) by one a token; an image of h x w tokens takes a
block whose rows and columns count from where the text stopped, and the text goes on after
max(h, w). Invariant: positions of a sequence are those of its parts laid end to end, each part
starting at `next_position` of the one before, as long as no part begins inside an image.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def image_block(grid_thw: Sequence[int] | np.ndarray, start: int, merge: int = 2) -> np.ndarray:
    """Positions (3, t*h*w/merge**2) of one image whose first token stands at `start`."""
    t, h, w = int(grid_thw[0]), int(grid_thw[1]) // merge, int(grid_thw[2]) // merge
    return np.indices((t, h, w)).reshape(3, -1) + start


def mrope_positions(
    ids: Sequence[int] | np.ndarray,
    grids: np.ndarray | Sequence[Sequence[int]],
    *,
    image_token_id: int,
    merge: int = 2,
    start: int = 0,
) -> np.ndarray:
    """Positions (3, T) of `ids` (T,), whose image tokens belong to `grids` (n_images, 3) in order.

    `start` continues an earlier part: `next_position` of its positions.
    """
    tokens = np.asarray(ids, dtype=np.int64)
    is_image = tokens == image_token_id
    grid_rows = np.asarray(grids, dtype=np.int64).reshape(-1, 3)
    out = np.empty((3, len(tokens)), dtype=np.int64)
    at, position = 0, start
    for index, grid in enumerate(grid_rows):
        ahead = np.flatnonzero(is_image[at:])
        first = at + int(ahead[0]) if len(ahead) else len(tokens)
        out[:, at:first] = np.arange(position, position + first - at)
        position += first - at
        block = image_block(grid, position, merge)
        at = first + block.shape[1]
        found = int(is_image[first:at].sum())
        if found != block.shape[1]:
            raise ValueError(
                f"image {index} of {len(grid_rows)} has {block.shape[1]} tokens by its grid "
                f"{grid.tolist()} but {found} image tokens stand at index {first}"
            )
        out[:, first:at] = block
        position += max(int(grid[1]), int(grid[2])) // merge
    if is_image[at:].any():
        raise ValueError(
            f"{int(is_image[at:].sum())} image tokens from index "
            f"{at + int(is_image[at:].argmax())} on have no grid; {len(grid_rows)} were given"
        )
    out[:, at:] = np.arange(position, position + len(tokens) - at)
    return out


def next_position(positions: np.ndarray) -> int:
    """Where the token after `positions` (3, T) stands."""
    return int(positions.max()) + 1 if positions.size else 0
