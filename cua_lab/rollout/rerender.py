"""What changed between a text the policy emitted and the same text as a server rendered it again.

`changes` cuts both texts into pieces, in step: equal bytes, or a change of one benign kind. It
returns `None` where any change is not benign. Invariant: the pieces' lengths add up to both texts,
and replacing the changed pieces of one gives the other.

Benign is white space outside JSON strings, unless it joins or parts two words, and JSON written
another way with equal values. Texts are bytes; a call is what stands between `<tool_call>` tags.
"""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Change = Literal["white_space", "json"]

_TAG = re.compile(rb"(</?tool_call>)")
_SPACE = b" \t\n\r\x0b\x0c"
_PROSE = re.compile(rb'"(?:[^"\\]|\\.)*"|[ \t\n\r\v\f]+|[^ \t\n\r\v\f"]+|"', re.DOTALL)
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


@dataclass(frozen=True, slots=True)
class _Item:
    space: bytes
    """White space in front."""
    kind: Literal["word", "tag", "json", "end"]
    data: bytes


def changes(emitted: bytes, rendered: bytes) -> list[Piece] | None:
    """The benign changes from `emitted` to `rendered`, or `None` if one is not benign."""
    if emitted == rendered:
        return [Piece(len(emitted), len(rendered), None)]
    ours, theirs = _items(emitted), _items(rendered)
    if len(ours) != len(theirs):
        return None
    pieces: list[Piece] = []
    before = "start"
    for mine, other in zip(ours, theirs, strict=True):
        if mine.kind != other.kind:
            return None
        joins = not (mine.space and other.space) and mine.space != other.space
        if joins and before not in _ROOMY and mine.kind not in _ROOMY:
            return None
        same_space = mine.space == other.space
        space = Piece(len(mine.space), len(other.space), None if same_space else "white_space")
        data = _data_pieces(mine, other)
        if data is None:
            return None
        pieces += [space, *data]
        before = mine.kind
    return [piece for piece in pieces if piece.emitted or piece.rendered]


def _items(text: bytes) -> list[_Item]:
    """Words, tags and JSON values in order, each with the white space in front of it."""
    items: list[_Item] = []
    space = b""
    for kind, data in _stretches(text):
        if kind == "space":
            space += data
        else:
            items.append(_Item(space, kind, data))  # type: ignore[arg-type]
            space = b""
    return [*items, _Item(space, "end", b"")]


def _stretches(text: bytes) -> Iterable[tuple[str, bytes]]:
    tag = b""
    for position, chunk in enumerate(_TAG.split(text)):
        if position % 2:
            yield "tag", chunk
            tag = chunk
            continue
        core = chunk.strip(_SPACE)
        lead = chunk.find(core)
        yield "space", chunk[:lead]
        if core[:1] in (b"{", b"[") and _parse(core) is not None:
            yield "json", core
        elif tag == b"<tool_call>":  # a broken call: any white space may stand in a string
            yield "word", core
        else:
            for match in _PROSE.findall(core):
                yield ("word" if match.strip(_SPACE) else "space"), match
        yield "space", chunk[lead + len(core) :]


def _data_pieces(mine: _Item, other: _Item) -> list[Piece] | None:
    if mine.data == other.data:
        return [Piece(len(mine.data), len(other.data), None)]
    if mine.kind == "json" and _same(_parse(mine.data), _parse(other.data)):
        return _json_pieces(mine.data, other.data)
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


def _parse(text: bytes) -> Any:
    """The JSON value, or `None` where two readers could disagree on it (and for `null`)."""
    try:
        return json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=_finite,
        )
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


def _same(a: Any, b: Any) -> bool:
    """Equal JSON values: 1 equals 1.0, but `true` does not equal 1 nor "1"."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a is None) is type(b is None) and bool(a == b)
