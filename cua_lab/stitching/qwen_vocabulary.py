"""The real vocabulary of Qwen2.5 and Qwen3: text to ids as their tokenizer splits it, and back.

The ranks come from the `dashscope` package; ids to bytes is `codec_from_ranks`, and text to ids is
byte-pair encoding, here in its simplest form: join the two neighbours of lowest rank, again and
again. Invariant: the ids of a text hold exactly its bytes, control names and call tags as single
ids. For lessons and tests; a server's own tokenizer is faster.
"""

from __future__ import annotations

import functools
import importlib.util
from itertools import pairwise
from pathlib import Path

import regex

from cua_lab.errors import LabError
from cua_lab.stitching.codec import QWEN_CONTROL, QWEN_TEXTUAL, TableCodec, codec_from_ranks

SPLIT = regex.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen's pieces; merges never cross their edges."""
ADDED = {name: token_id for token_id, name in (QWEN_CONTROL | QWEN_TEXTUAL).items()}
_ADDED = regex.compile("|".join(regex.escape(name) for name in sorted(ADDED, key=len)[::-1]))


def ranks_file() -> Path:
    """Where `dashscope` keeps the ranks; the package itself is not imported."""
    spec = importlib.util.find_spec("dashscope")
    path = (
        Path(spec.origin).parent / "resources" / "qwen.tiktoken" if spec and spec.origin else None
    )
    if path is None or not path.is_file():
        raise LabError(
            "Qwen's ranks are not here: the package dashscope has them;"
            " install it with: pip install -e '.[test]'"
        )
    return path


@functools.cache
def qwen_codec() -> TableCodec:
    """The bytes of every Qwen id; read once, 151,000 lines in a fifth of a second."""
    return codec_from_ranks(ranks_file())


def qwen_ids(text: str) -> tuple[int, ...]:
    """The ids that Qwen's tokenizer gives a text."""
    ids: list[int] = []
    at = 0
    for match in _ADDED.finditer(text):
        ids += _plain(text[at : match.start()])
        ids.append(ADDED[match.group()])
        at = match.end()
    return tuple(ids + _plain(text[at:]))


def _plain(text: str) -> list[int]:
    return [token_id for piece in SPLIT.findall(text) for token_id in _merged(piece.encode())]


@functools.cache
def _ranks() -> dict[bytes, int]:
    return {data: rank for rank, data in qwen_codec().table.items() if rank < min(QWEN_CONTROL)}


@functools.lru_cache(maxsize=4096)
def _merged(piece: bytes) -> tuple[int, ...]:
    ranks, parts = _ranks(), [bytes([byte]) for byte in piece]
    while len(parts) > 1:
        pairs = [a + b for a, b in pairwise(parts)]
        best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        index = pairs.index(best)
        parts[index : index + 2] = [best]
    return tuple(ranks[part] for part in parts)
