"""JSONL files of any size, read line by line within bounds; they are written by `cua_lab.files`.

Invariant: no line, however long, is held whole in memory.
"""

from __future__ import annotations

import codecs
import json
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from cua_lab.errors import LabError

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


def read_text(path: str | Path) -> str:
    """A UTF-8 file with or without a byte order mark; what is no UTF-8 is a `LabError`."""
    try:
        data = Path(path).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LabError(
            f"{path} is no UTF-8 text ({not_utf8(data, error)}); save it as UTF-8"
        ) from error


def not_utf8(start: bytes, error: UnicodeDecodeError) -> str:
    """What a text is instead, by its first bytes, or where it stops being UTF-8."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "it is UTF-16, as PowerShell's > writes it"
    return f"byte {error.start} is 0x{error.object[error.start]:02x}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 3


def show(value: object) -> str:
    """A value for an error message: short, and safe for any depth."""
    return _SHORT.repr(value)
