"""A lab in which a vision-language model learns, by GRPO, to drive a real screen."""

__version__ = "0.1.0"
