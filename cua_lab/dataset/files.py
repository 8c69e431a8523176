"""Files: written beside their final name and renamed, read line by line within bounds.

Invariant: a reader never sees half a file, and no line, however long, is held whole in memory.
"""

import json
import os
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

MAX_LINE = 16 * 2**20
"""Bytes of one row; a longer line is reported and skipped."""


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that takes its name only when the block ends well."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as out:
            yield out
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def dumps(value: Any) -> str:
    """JSON in ASCII: lone surrogates survive, every tool can read it."""
    return json.dumps(value, ensure_ascii=True)


def bounded_lines(stream: BinaryIO, limit: int = MAX_LINE) -> Iterator[tuple[bytes, int, bool]]:
    """(line without its newline, bytes consumed, whole?); an overlong line is cut to its start."""
    while line := stream.readline(limit):
        consumed, whole = len(line), True
        if len(line) == limit and not line.endswith(b"\n"):
            whole = False
            while rest := stream.readline(limit):
                consumed += len(rest)
                if rest.endswith(b"\n"):
                    break
            line = line[:200]
        yield line.rstrip(b"\r\n"), consumed, whole


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 3


def show(value: object) -> str:
    """A value for an error message: short, and safe for any depth."""
    return _SHORT.repr(value)
