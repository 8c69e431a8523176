"""Every rank runs the vision tower equally often, or all of them say so at once.

    images of a rank's micro-batches ──gather──▶ the same list on all ranks ──▶ go on | LabError

Under FSDP a rank that enters the vision tower waits in its all-gathers for the others. One that
has a text-only micro-batch never comes, and after half an hour a watchdog ends the job without a
word about why (miles#2406). So the counts are compared before the first forward pass, over gloo,
where nobody waits for weights. Invariant: either every rank returns, or every rank raises the same
`LabError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from cua_lab.errors import LabError
from cua_lab.training.ranks import Ranks


def check_vision_parity(ranks: Ranks, images: Sequence[int]) -> None:
    """Compare the micro-batches of the ranks: `images` are those of this rank's, in order.

    What must be equal is whether the tower runs, not over how many images: one call takes them all.
    Raises `LabError` on every rank where one has more micro-batches, or runs the tower in one that
    another does not.
    """
    counts = ranks.gather(tuple(images))
    problem = parity_problem(counts)
    if problem is not None:
        raise LabError(problem)


def parity_problem(counts: Sequence[Sequence[int]]) -> str | None:
    """The first micro-batch that would hang, in words; `counts` are images by rank and place."""
    sizes = {len(one) for one in counts}
    if len(sizes) > 1:
        said = ", ".join(f"rank {rank}: {len(one)}" for rank, one in enumerate(counts))
        return (
            f"the ranks have different numbers of micro-batches ({said}): those with more would"
            " wait forever; deal the same number to each, with fillers of weight 0"
        )
    for place, row in enumerate(zip_longest(*counts, fillvalue=0)):
        blind = [rank for rank, images in enumerate(row) if not images]
        if blind and len(blind) < len(row):
            return (
                f"micro-batch {place}: rank {', '.join(map(str, blind))} shows no image and the"
                " others run the vision tower, where they would wait forever; give each sample an"
                " image (`failed_sample` has a dummy one of 64 px)"
            )
    return None
