"""The reward for grounding: how near a click came to its target, and whether it is inside the box.

Data model: arrays with one value per click; the pieces stand beside the total. What other tasks pay
is their env's grade. Invariant: all arguments are finite numbers in the declared
coordinate space, or the call is refused with the row, what stood there and what was expected; no
value is clipped, swapped or guessed into place, because a reward that is silently wrong is learnt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cua_lab.dataset.spaces import Size, Space, as_space, extent
from cua_lab.errors import LabError


class RewardError(LabError, ValueError):
    """An argument that would make a reward mean something else."""


@dataclass(frozen=True, slots=True)
class GroundingWeights:
    """The article's numbers; distances are shares of the screen's width and height."""

    position: float = 0.6
    containment: float = 0.3
    exact: float = 0.1
    radius: float = 0.1
    """Distance at which the position piece reaches 0."""
    outside: float = -0.3
    """The containment piece of a click outside the box; inside it is 1."""
    tolerance: float = 0.005
    """Below this distance a click is exact: 5 px on a screen of 1000."""

    def __post_init__(self) -> None:
        for name in ("radius", "tolerance"):
            if not getattr(self, name) > 0:
                raise RewardError(f"{name} is {getattr(self, name)}; it must be above 0")


@dataclass(frozen=True, slots=True, eq=False)
class GroundingReward:
    """Arrays of one shape; a number each where one point was given."""

    total: np.ndarray
    position: np.ndarray
    """1 at the target, falling in a straight line to 0 at `radius`; in [0, 1]."""
    containment: np.ndarray
    """1 inside the box (edges included), `outside` elsewhere; 0 where no box was given."""
    exact: np.ndarray
    """1 nearer than `tolerance`, else 0."""
    distance: np.ndarray
    """Euclidean, with width and height as 1."""


def grounding_reward(
    points: ArrayLike,
    targets: ArrayLike | None = None,
    boxes: ArrayLike | None = None,
    *,
    space: Space = "0-1",
    size: Size | None = None,
    weights: GroundingWeights | None = None,
) -> GroundingReward:
    """The grounding reward of clicks `points` (..., 2) on `targets` (..., 2) with `boxes` (..., 4).

        total = 0.6 * max(0, 1 - d / 0.1) + 0.3 * (1 | -0.3) + 0.1 * [d < 0.005]

    Boxes are corners (x0, y0, x1, y1); without targets the boxes' centres are meant. The arguments
    broadcast: a grid of points against one target gives the landscape.

    Range: -0.09 to 1 with a box, 0 to 0.7 without. Failure modes: flat at -0.09 farther than 0.1
    from the target, so a policy that is far off learns nothing from it; a box wider than 0.2 pays
    0.3 for clicks whose position piece is 0, and a target far from the middle of its box pays more
    outside the box than inside; on a wide screen 0.1 across is longer than 0.1 down; the exact
    piece is noise for boxes of a few pixels at 0-1000.
    """
    weights = weights or GroundingWeights()
    point = _unit("points", points, 2, as_space(space), size)
    box = None if boxes is None else _unit("boxes", boxes, 4, as_space(space), size)
    if box is not None:
        _check_corners(box)
    if targets is not None:
        target = _unit("targets", targets, 2, as_space(space), size)
    elif box is not None:
        target = (box[..., :2] + box[..., 2:]) / 2
    else:
        raise RewardError("neither targets nor boxes were given: there is nothing to be near to")
    try:
        distance = np.hypot(*np.moveaxis(point - target, -1, 0))
        containment = _containment(point, box, distance.shape, weights)
        np.broadcast_shapes(distance.shape, containment.shape)
    except ValueError as error:
        shapes = {"points": point.shape, "targets": target.shape}
        shapes |= {} if box is None else {"boxes": box.shape}
        raise RewardError(
            f"shapes do not go together: {shapes}; give one target a point"
        ) from error
    position = np.maximum(0.0, 1.0 - distance / weights.radius)
    exact = (distance < weights.tolerance).astype(float)
    total = weights.position * position + weights.containment * containment + weights.exact * exact
    return GroundingReward(total, position, containment, exact, distance)


def _containment(
    point: np.ndarray, box: np.ndarray | None, shape: tuple[int, ...], weights: GroundingWeights
) -> np.ndarray:
    if box is None:
        return np.zeros(shape)
    inside = ((point >= box[..., :2]) & (point <= box[..., 2:])).all(axis=-1)  # edges count
    return np.where(inside, 1.0, weights.outside)


def _unit(name: str, values: ArrayLike, width: int, space: Space, size: Size | None) -> np.ndarray:
    """Coordinates (..., width) as shares of the screen, checked to lie on it."""
    array = np.asarray(values, dtype=float)
    if array.ndim == 0 or array.shape[-1] != width:
        wanted = "(x, y)" if width == 2 else "(x0, y0, x1, y1)"
        raise RewardError(f"{name} has shape {array.shape}; its last axis must be {wanted}")
    _finite(name, array)
    across, down = extent(space, size)
    limit = np.tile([across, down], width // 2)
    where = f"{size[0]}x{size[1]} px" if space == "pixels" and size else "the screen"
    _refuse(
        (array < 0) | (array > limit),
        array,
        name,
        f"in space {space!r}, 0 to {across:g} across and 0 to {down:g} down ({where});"
        " is it in another space?",
    )
    return np.asarray(array / limit)


def _check_corners(box: np.ndarray) -> None:
    swapped = np.asarray((box[..., :2] >= box[..., 2:]).any(axis=-1))
    if swapped.any():
        row = _first(swapped)
        raise RewardError(
            f"box {row} is {box[row].tolist()} of the screen: its corners are swapped, it is empty,"
            " or it is (x, y, width, height); expected (x0, y0, x1, y1) with x0 < x1 and y0 < y1"
        )


def _finite(name: str, array: np.ndarray) -> np.ndarray:
    _refuse(~np.isfinite(array), array, name, "a finite number; a missing value is not a reward")
    return array


def _refuse(bad: np.ndarray, array: np.ndarray, name: str, expected: str) -> None:
    if bad.any():
        index = _first(bad)
        place = f" at {index if len(index) > 1 else index[0]}" if index else ""
        raise RewardError(f"{name}{place} is {array[index]:g}; expected {expected}")


def _first(bad: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(bad)[0])
