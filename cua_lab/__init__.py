"""A lab in which a vision-language model learns, by GRPO, to drive a real screen."""

from __future__ import annotations

__version__ = "0.1.0"
