"""Seeds by name: one number for each (run, stage, step, episode), the same on every machine."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: str | int) -> int:
    """A seed in [0, 2**31) that depends on every part and on their order."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


def turn_seed(episode_seed: int, turn: int) -> int:
    """The seed that a turn's answer is sampled with: of the episode's, and the turns before it."""
    return derive_seed(episode_seed, "turn", turn)
