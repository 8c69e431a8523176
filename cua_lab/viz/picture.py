"""A matplotlib figure that shows itself: in a notebook it is a PNG, anywhere else a `Figure`.

Invariant: it belongs to nobody's pyplot, so it is drawn once, where it stands, and never leaks.
"""

import io

from matplotlib.figure import Figure

from cua_lab.viz.style import paper


class Picture(Figure):
    """Use as any `Figure`; as the last line of a cell it is displayed."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with paper():
            self.savefig(buffer, format="png", metadata={"Software": None})
        return buffer.getvalue()
