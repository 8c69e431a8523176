"""The mask viewer: a stitched episode, token by token, in a notebook or on a page of its own.

`mask_viewer(...)` is a widget around one `payload` (see `cua_lab.viz.payload`), which is all its
JavaScript ever sees. Invariant: the three forms (widget, standalone page, static copy) show the
same payload, and the `repr` depends on nothing else, so stored notebook outputs never drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from cua_lab.viz import page
from cua_lab.viz.fallback import fallback_html, summary
from cua_lab.viz.payload import Codec, viewer_payload

_BACKDROP = (
    "body{margin:0;padding:16px;background:light-dark(#fff,#111)}:root{color-scheme:light dark}"
)


class MaskViewer(anywidget.AnyWidget):
    """The widget. Made by `mask_viewer`; holds only its payload."""

    _esm = page.STATIC / "viewer.js"
    _css = page.STATIC / "viewer.css"
    payload = traitlets.Dict().tag(sync=True)

    def save_html(self, path: str | Path) -> Path:
        """Write a page that works offline, from `file://`, under `default-src 'none'`."""
        style = page.asset("viewer.css") + _BACKDROP
        block = page.viewer_block("viewer-data", self.payload)
        title = self.payload["title"]
        script = page.viewer_script()
        return page.write_page(
            path, page.page(title=title, body=f"<main>{block}</main>", style=style, script=script)
        )

    def __repr__(self) -> str:
        members = "; ".join(f"{m['name']}: {summary(m)}" for m in self.payload["members"])
        return f"MaskViewer({self.payload['title']!r}, {members})"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if bundle is not None else ({}, {})
        static = {"text/plain": repr(self), "text/html": fallback_html(self.payload)}
        return {**data, **static}, metadata


def mask_viewer(
    stitched: Any,
    codec: Codec,
    *,
    images: Any = None,
    advantages: Any = None,
    ratios: Any = None,
    entropies: Any = None,
    names: Sequence[str] | None = None,
    rewards: Sequence[float | None] | None = None,
    title: str = "Stitched episode",
) -> MaskViewer:
    """The mask viewer of one `Stitched`, or of a list of them (then two can be compared).

    `images`: a `Frame` or PIL image for each image segment, in order. `advantages`, `ratios`,
    `entropies`: one number, or one for each trained token, or one for each response token. With a
    list of sequences each of these, and `rewards`, is a list too.
    """
    payload = viewer_payload(
        stitched,
        codec,
        images=images,
        advantages=advantages,
        ratios=ratios,
        entropies=entropies,
        names=names,
        rewards=rewards,
        title=title,
    )
    return MaskViewer(payload=payload)
