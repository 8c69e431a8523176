"""A screenshot or film strip that says what it shows: displayed with alternative text.

Invariant: it is the image it was made of, in every pixel, and wherever an image is taken it is one.
"""

from __future__ import annotations

from typing import Any, Self

from PIL import Image

from cua_lab.pictures import base64_text, png_bytes


class Described(Image.Image):
    """An image with words for people who cannot see it."""

    alt: str = ""

    @classmethod
    def of(cls, image: Image.Image, alt: str) -> Self:
        """The same pixels, not a copy of them."""
        described = cls()
        described.__dict__.update(image.__dict__)
        described.alt = alt
        return described

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        kind, size = type(self).__name__, f"{self.width}x{self.height}"
        data = {
            "image/png": base64_text(png_bytes(self, compress_level=6)),
            "text/plain": f"<{kind} {size}>",
        }
        return data, {"image/png": {"alt": self.alt}}

    def _repr_jpeg_(self) -> None:
        """One picture is enough: a notebook would store both."""
