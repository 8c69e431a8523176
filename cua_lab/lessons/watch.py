"""A run, watched from a notebook: its learning curves are redrawn in place while it goes on.

Invariant: watching changes nothing about the run, and who interrupts the watcher interrupts the
run, which then keeps what is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from cua_lab.pictures import base64_text
from cua_lab.viz.curves import curves

if TYPE_CHECKING:
    from cua_lab.viz.picture import Picture

T = TypeVar("T")
ALT = {"image/png": {"alt": "Learning curves of the run: a row a task, a panel a quantity"}}


async def watched(job: Awaitable[T], path: Path, *, every_s: float = 10.0) -> T:
    """Await `job`, which writes its run to the folder `path`; returns what it returns.

    It draws every `every_s` seconds, and seldomer where drawing is slow: never over a tenth of the
    time.
    """
    from IPython.display import display

    task = asyncio.ensure_future(job)
    shown: Any = None
    seen, drawing_s = 0, 0.0
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=max(every_s, 9 * drawing_s))
            metrics = path / "metrics.jsonl"
            size = metrics.stat().st_size if metrics.exists() else 0
            if size > seen:
                seen, started = size, perf_counter()
                shown = _show(await asyncio.to_thread(_picture, path), shown, display)
                drawing_s = perf_counter() - started
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


def _picture(path: Path) -> dict[str, str]:
    """Drawn in a thread: a second on the event loop is a second in which no screen answers."""
    figure: Picture = curves(path, title="learning curves")  # type: ignore[assignment]
    png = base64_text(figure._repr_png_())
    return {"image/png": png, "text/plain": "learning curves"}


def _show(bundle: dict[str, str], shown: Any, display: Any) -> Any:
    if shown is None:
        return display(bundle, metadata=ALT, raw=True, display_id=True)
    shown.update(bundle, metadata=ALT, raw=True)
    return shown
