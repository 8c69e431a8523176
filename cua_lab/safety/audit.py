"""An append-only log of every decision, whose lines hold each other.

    record ──append──▶ a line of JSON with the hash of the line before, and its own
    path ──verify──▶ Chain: whole, or broken at a line and why

The head file beside the log holds the number of lines and the last hash, so a log that was cut at
its end is found too. Whoever can write both files can write a new history; keep the head elsewhere
to prevent that. Invariant: every line is the canonical JSON of its record, and secrets were taken
out of it before it was hashed.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cua_lab.errors import LabError
from cua_lab.files import append_line, read_text

START = "0" * 64
"""What the first line holds as the hash of the line before."""
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Chain:
    """What `verify` found."""

    lines: int
    """Whole lines from the beginning."""
    last: str
    """The hash of the last of them."""
    broken: str | None = None
    """Where the chain is broken and why; `None` where it is whole."""
    lags: bool = False
    """Whether only the head is one line behind: the process ended between the two writes."""


class AuditLog:
    """One file; continues a whole chain that is there already."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._lines, self._last = 0, START
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() or head_of(self.path).exists():
            chain = verify(self.path)
            if chain.broken and not chain.lags:
                raise LabError(
                    f"the audit log {self.path} is broken ({chain.broken}); move it away, with its"
                    " head, and a new one begins"
                )
            self._lines, self._last = chain.lines, chain.last
        self._write_head()

    def append(self, record: Mapping[str, Any]) -> str:
        """Add a record (JSON types, already redacted); its hash."""
        with self._lock:
            body = {"format": FORMAT, "n": self._lines, "before": self._last, **record}
            digest = _digest(body)
            append_line(self.path, _canonical(body | {"hash": digest}))
            self._lines, self._last = self._lines + 1, digest
            self._write_head()
        return digest

    def _write_head(self) -> None:
        # In place and without waiting for the disk: 20 us. A kill leaves the old head or the new.
        handle = os.open(head_of(self.path), os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(handle, f"{self._lines:012d} {self._last}\n".encode(), 0)
        finally:
            os.close(handle)


def head_of(path: str | os.PathLike[str]) -> Path:
    """Where the number of lines and the last hash stand."""
    path = Path(path)
    return path.with_name(path.name + ".head")


def verify(path: str | os.PathLike[str]) -> Chain:
    """Walk along the chain; a missing log or head is a break too."""
    path = Path(path)
    if not path.is_file():
        return Chain(0, START, f"there is no log {path}")
    lines = path.read_bytes().split(b"\n")
    rest = lines.pop()
    last = START
    for number, line in enumerate(lines):
        try:
            last = _checked(line, number, last)
        except ValueError as error:
            return Chain(number, last, f"line {number + 1}: {error}")
    if rest:
        return Chain(len(lines), last, f"line {len(lines) + 1} has no end: it was cut off")
    return _with_head(path, len(lines), last)


def _checked(line: bytes, number: int, before: str) -> str:
    """The hash of a line that follows `before`; `ValueError` says what is wrong with it."""
    try:
        record = json.loads(line)
    except RecursionError as error:
        raise ValueError("it is nested deeper than any record") from error
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    claimed = record.pop("hash", None)
    if record.get("n") != number:
        raise ValueError(f"it says that it is number {record.get('n')}; lines are missing or added")
    if record.get("before") != before:
        raise ValueError("it does not follow the line before it")
    if claimed != _digest(record):
        raise ValueError("its content does not have its hash: it was changed")
    if line != _canonical(record | {"hash": claimed}).encode():
        raise ValueError("it is not written as the log writes lines: it was changed")
    return str(claimed)


def _with_head(path: Path, count: int, last: str) -> Chain:
    head = head_of(path)
    if not head.is_file():
        return Chain(count, last, f"there is no head {head}: nothing says where the log ends")
    words = read_text(head).split()
    sealed = int(words[0]) if len(words) == 2 and words[0].isdecimal() else -1
    if sealed == count and words[1] == last:
        return Chain(count, last)
    if sealed == count - 1 and sealed >= 0:
        why = f"the head says {sealed} lines and the log has {count}: the last one is not sealed"
        return Chain(count, last, why, lags=True)
    if sealed == count:
        return Chain(count, last, "the last line's hash is not the one in the head")
    return Chain(count, last, f"the head says {sealed} lines and the log has {count}")


def _canonical(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(record).encode()).hexdigest()
