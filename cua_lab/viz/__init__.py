"""Pictures of what happened: the mask viewer, film strips, curves, a group's rewards, the report.

This room only reads: a `Stitched` episode, a list of frames, or a run's folder goes in, a widget, a
figure or a page comes out. Nothing here changes what it shows. Importing this package imports
neither matplotlib nor ipywidgets: the former waits inside the functions, the widget for its name.
"""

from __future__ import annotations

from typing import Any

from cua_lab.viz.curves import curves
from cua_lab.viz.filmstrip import filmstrip
from cua_lab.viz.frames import Frame
from cua_lab.viz.group_view import group_view
from cua_lab.viz.payload import viewer_payload
from cua_lab.viz.runfiles import episode_frames, read_run

__all__ = [
    "Frame",
    "MaskViewer",
    "curves",
    "episode_frames",
    "filmstrip",
    "group_view",
    "mask_viewer",
    "read_run",
    "viewer_payload",
]


def __getattr__(name: str) -> Any:
    if name in ("MaskViewer", "mask_viewer"):
        from cua_lab.viz import viewer

        return getattr(viewer, name)
    raise AttributeError(f"cua_lab.viz has no {name!r}; it has {', '.join(__all__)}")
