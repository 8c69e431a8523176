"""What changed between a text the policy emitted and the same text as a server rendered it again.

`changes` cuts both texts into pieces, in step: equal bytes, or a change of one benign kind. It
returns `None` where any change is not benign. Invariant: the pieces' lengths add up to both texts,
and replacing the changed pieces of one gives the other.

Benign is white space outside JSON strings, unless it joins or parts two words, and JSON written
another way with equal values. Texts are bytes; a call is what stands between `<tool_call>` tags.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

Change = Literal["white_space", "json"]

_TAG = re.compile(rb"(</?tool_call>)")
_SPACE = b" \t\n\r\x0b\x0c"
_PROSE = re.compile(rb'([ \t\n\r\v\f]*)("(?:[^"\\]|\\.)*"|[^ \t\n\r\v\f"]+|")', re.DOTALL)
_LEXEME = re.compile(rb'"(?:[^"\\]|\\.)*"|[ \t\n\r]+|[{}\[\],:]|[^ \t\n\r{}\[\],:"]+', re.DOTALL)
_ROOMY = ("start", "end", "tag", "json")
"""Beside these, white space may come and go; between two words it may only change."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of both texts: `emitted` bytes of one stand for `rendered` bytes of the other."""

    emitted: int
    rendered: int
    change: Change | None
    """`None`: the same bytes."""


_Item = tuple[bytes, Literal["word", "tag", "json", "end"], bytes]
"""(white space in front, kind, text)."""


def changes(emitted: bytes, rendered: bytes) -> list[Piece] | None:
    """The benign changes from `emitted` to `rendered`, or `None` if one is not benign."""
    ours, theirs = _items(emitted), _items(rendered)
    if len(ours) != len(theirs):
        return None
    pieces: list[Piece] = []
    same = 0
    before = "start"
    for mine, other in zip(ours, theirs, strict=True):
        if mine == other:
            same += len(mine[0]) + len(mine[2])
        else:
            changed = _item_pieces(mine, other, before)
            if changed is None:
                return None
            pieces += [Piece(same, same, None), *changed]
            same = 0
        before = mine[1]
    pieces.append(Piece(same, same, None))
    return [piece for piece in pieces if piece.emitted or piece.rendered]


def _items(text: bytes) -> list[_Item]:
    """Words, tags and JSON values in order, each with the white space in front of it."""
    items: list[_Item] = []
    tag, space = b"", b""
    for position, chunk in enumerate(_TAG.split(text)):
        if position % 2:
            items.append((space, "tag", chunk))
            tag, space = chunk, b""
            continue
        core = chunk.strip(_SPACE)
        lead = chunk.find(core)
        if core[:1] in (b"{", b"[") and _parse(core) is not None:
            items.append((chunk[:lead], "json", core))
        elif tag == b"<tool_call>":  # a broken call: any white space may stand in a string
            items.append((chunk[:lead], "word", core))
        else:
            items += [(before, "word", word) for before, word in _PROSE.findall(chunk)]
            lead = lead if core else 0
        space = chunk[lead + len(core) :]
    return [*items, (space, "end", b"")]


def _item_pieces(mine: _Item, other: _Item, before: str) -> list[Piece] | None:
    """What changed between two items, or `None`; `before` is the kind of item in front."""
    space, kind, data = mine
    other_space, other_kind, other_data = other
    if kind != other_kind:
        return None
    joins = space != other_space and not (space and other_space)
    if joins and before not in _ROOMY and kind not in _ROOMY:
        return None
    moved: Change | None = None if space == other_space else "white_space"
    pieces = [Piece(len(space), len(other_space), moved)]
    if data == other_data:
        return [*pieces, Piece(len(data), len(data), None)]
    if kind == "json" and _same(_parse(data), _parse(other_data)):
        return pieces + _json_pieces(data, other_data)
    return None


def _json_pieces(mine: bytes, other: bytes) -> list[Piece]:
    """Equal values, written differently: lexeme by lexeme, or as a whole if the order changed."""
    ours, theirs = _lexemes(mine), _lexemes(other)
    if len(ours) != len(theirs):
        return [Piece(len(mine), len(other), "json")]
    pieces = []
    for (space_a, a), (space_b, b) in zip(ours, theirs, strict=True):
        if a != b and not _same_scalar(a, b):
            return [Piece(len(mine), len(other), "json")]
        for x, y in ((space_a, space_b), (a, b)):
            pieces.append(Piece(len(x), len(y), None if x == y else "json"))
    return pieces


def _lexemes(text: bytes) -> list[tuple[bytes, bytes]]:
    """(white space in front, lexeme) pairs; JSON that parsed has no other bytes."""
    found: list[tuple[bytes, bytes]] = []
    space = b""
    for lexeme in _LEXEME.findall(text):
        if lexeme.strip(_SPACE):
            found.append((space, lexeme))
            space = b""
        else:
            space = lexeme
    return found


def _same_scalar(a: bytes, b: bytes) -> bool:
    x, y = _parse(a), _parse(b)
    return x is not None and y is not None and _same(x, y)


class _Duplicate(ValueError):
    pass


@lru_cache(maxsize=64)  # both texts hold most of their calls in the same bytes
def _parse(text: bytes) -> Any:
    """The JSON value, or `None` where two readers could disagree on it (and for `null`)."""
    try:
        return _DECODER.decode(text.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise _Duplicate("a key occurs twice")
    return dict(pairs)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} does not fit a float")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)


def _same(a: Any, b: Any) -> bool:
    """Equal JSON values: 1 equals 1.0, but `true` does not equal 1 nor "1"."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a is None) is type(b is None) and bool(a == b)
