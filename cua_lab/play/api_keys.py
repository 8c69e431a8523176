"""Keys come from files: only a path is ever passed on, written down or shown.

Invariant: a key goes from its file into this process's environment, where a provider's SDK reads
it, and nowhere else.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cua_lab.errors import LabError

DAYTONA_KEY = "DAYTONA_API_KEY"


def load_key(key_file: str | Path, variable: str) -> str:
    """Put a key into this process's environment from its file; one that is set already wins."""
    if os.environ.get(variable):
        return os.environ[variable]
    path = Path(key_file).expanduser()
    try:
        key = path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise LabError(
            f"no {variable}: cannot read {path} ({error.strerror}); write the key into that file,"
            f" for your eyes only: install -m 600 /dev/stdin {path}"
        ) from error
    if not key:
        raise LabError(f"{path} is empty; write the key for {variable} into it")
    os.environ[variable] = key
    return key


def read_key(path: Path) -> str:
    """The one line of a file that only its owner can read."""
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise LabError(f"cannot read the key file {path}: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise LabError(f"{path} can be read by others: chmod 600 {path}")
    if not text or len(text.split()) != 1:
        raise LabError(f"{path} must hold one key and nothing else")
    return text
