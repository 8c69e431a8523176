"""Which samples have been seen: duplicates and near-duplicates in bounded memory.

Duplicate: same image (its pixels, or its path where pixels are not read) and same instruction.
Near-duplicate: same instruction, target within 2% of the screen, difference hashes at most 3 bits
apart. Hashes within 3 bits agree in at least one of their four 16-bit bands, so the store is asked
for equal bands only.

Invariant: memory does not grow with rows; the store is SQLite's private temporary database, which
keeps 16 MB in memory and the rest on disk.
"""

from __future__ import annotations

import sqlite3
from hashlib import blake2b
from types import TracebackType

from cua_lab.dataset.image_facts import hamming
from cua_lab.dataset.spaces import Point

NEAR_BITS = 3
NEAR_SHIFT = 0.02
_LOOKED_AT = 64
"""Candidates of one band that are compared: a bound on work for files of look-alikes."""


def _key(*parts: bytes | str) -> int:
    digest = blake2b(digest_size=8)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return int.from_bytes(digest.digest(), "big", signed=True)


class Seen:
    """The samples accepted so far, by hash; use as a context manager."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-16000;"
            "CREATE TABLE exact (key INTEGER PRIMARY KEY, line INTEGER);"
            "CREATE TABLE near (band INTEGER, dhash INTEGER, x REAL, y REAL, line INTEGER);"
            "CREATE INDEX by_band ON near (band);"
            "BEGIN;"
        )

    def __enter__(self) -> Seen:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._db.close()

    def exact(self, image: bytes | str, instruction: str) -> int | None:
        """The line of the remembered sample with this image and instruction."""
        key = _key(image, instruction)
        row = self._db.execute("SELECT line FROM exact WHERE key = ?", (key,)).fetchone()
        return None if row is None else int(row[0])

    def near(self, dhash: int, instruction: str, point: Point | None) -> int | None:
        """The line of a remembered near-duplicate."""
        x, y = point or _NOWHERE
        for band in _bands(dhash, instruction):
            rows = self._db.execute(
                "SELECT dhash, x, y, line FROM near WHERE band = ? LIMIT ?", (band, _LOOKED_AT)
            )
            for other, ox, oy, line in rows:
                close = abs(x - ox) <= NEAR_SHIFT and abs(y - oy) <= NEAR_SHIFT
                if close and hamming(dhash, other & (2**64 - 1)) <= NEAR_BITS:
                    return int(line)
        return None

    def remember(
        self,
        image: bytes | str,
        dhash: int | None,
        instruction: str,
        point: Point | None,
        line: int,
    ) -> None:
        """Remember an accepted sample; `dhash` is `None` where pixels were not read."""
        key = _key(image, instruction)
        self._db.execute("INSERT OR IGNORE INTO exact VALUES (?, ?)", (key, line))
        if dhash is None:
            return
        signed = dhash - 2**64 if dhash >= 2**63 else dhash
        x, y = point or _NOWHERE
        self._db.executemany(
            "INSERT INTO near VALUES (?, ?, ?, ?, ?)",
            [(band, signed, x, y, line) for band in _bands(dhash, instruction)],
        )


_NOWHERE = (-1.0, -1.0)


def _bands(dhash: int, instruction: str) -> list[int]:
    return [
        _key(instruction, bytes([band]), (dhash >> 16 * band & 0xFFFF).to_bytes(2, "big"))
        for band in range(4)
    ]
