"""Python's cyclic garbage collector, kept from walking what lives as long as the run.

`import torch, transformers, hud` leave 695,000 objects; a full collection, which training meets
about once a step, takes 0.41 s to look at them all and frees none. Invariant: nothing is leaked by
it: what was set aside is collected as before once the block is left.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def objects_set_aside() -> Iterator[None]:
    """Leave everything that is alive now out of collections until the block ends."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
