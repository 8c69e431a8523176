"""JSONL files of any size, read line by line within bounds; they are written by `cua_lab.files`.

Invariant: no line, however long, is held whole in memory.
"""

from __future__ import annotations

import codecs
import json
import reprlib
from collections.abc import Iterator
from typing import Any, BinaryIO

MAX_LINE = 16 * 2**20
"""Bytes of one row; a longer line is reported and skipped."""


def dumps(value: Any) -> str:
    """JSON in ASCII: lone surrogates survive, every tool can read it."""
    return json.dumps(value, ensure_ascii=True)


def bounded_lines(stream: BinaryIO, limit: int = MAX_LINE) -> Iterator[tuple[bytes, int, bool]]:
    """(line without its newline, bytes consumed, whole?); an overlong line is cut to its start.

    The byte order mark that Windows' editors put before the first line is left out.
    """
    first = True
    while line := stream.readline(limit):
        consumed, whole = len(line), True
        if len(line) == limit and not line.endswith(b"\n"):
            whole = False
            while rest := stream.readline(limit):
                consumed += len(rest)
                if rest.endswith(b"\n"):
                    break
            line = line[:200]
        if first:
            line, first = line.removeprefix(codecs.BOM_UTF8), False
        yield line.rstrip(b"\r\n"), consumed, whole


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 3


def show(value: object) -> str:
    """A value for an error message: short, and safe for any depth."""
    return _SHORT.repr(value)
