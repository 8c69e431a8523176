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
    if not os.environ.get(variable):
        os.environ[variable] = read_key(key_file)
    return os.environ[variable]


def read_key(key_file: str | Path) -> str:
    """The one line of a file that only its owner can read."""
    path = Path(key_file).expanduser()
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise LabError(
            f"the key file {path} cannot be read ({error.strerror}); write the key into it, for"
            f" your eyes only: install -m 600 /dev/stdin {path}"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise LabError(f"the key file {path} can be read by others: chmod 600 {path}")
    if not text or len(text.split()) != 1:
        raise LabError(f"the key file {path} must hold one key and nothing else")
    return text
