"""`cua-lab`: one file per command group, heavy imports inside the commands.

Invariant: whatever somebody types, and whatever state the disk and the ports are in, a command ends
with its result or with one line that says what is wrong and what to do; a traceback is a fault of
ours.
"""

from __future__ import annotations

import errno
import json
import os
import sys

import typer

from cua_lab.cli.root import app
from cua_lab.errors import LabError

WHAT_TO_DO = {
    errno.ENOSPC: "free some space and start again; a run goes on with --resume",
    errno.EDQUOT: "free some of your quota and start again; a run goes on with --resume",
    errno.EACCES: "choose a place that you may use, or change its permissions",
    errno.EPERM: "choose a place that you may use, or change its permissions",
    errno.EROFS: "this file system is read-only; choose a place that can be written to",
    errno.ENOTDIR: "a part of this path is a file, not a folder; choose another path",
    errno.EEXIST: "a file of this name is in the way; move it, or choose another path",
    errno.EISDIR: "this is a folder; give a file",
    errno.ENOENT: "check the path",
    errno.EADDRINUSE: "another program listens there; choose another --port",
    errno.EADDRNOTAVAIL: "this machine has no such address; 127.0.0.1 is always there",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "too many open files; raise the limit with ulimit -n",
}


def main() -> None:
    """Run the CLI; what goes wrong becomes one clear line and exit status 2."""
    # Before torch is imported: two threads are 1.55x as fast when idle, 10x slower when not.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from cua_lab.cli import commands  # noqa: F401  (registers the commands)

    try:
        app()
    except Exception as error:
        text = in_one_line(error)
        if text is None:
            raise
        colour = False if os.environ.get("NO_COLOR") else None
        typer.secho(f"cua-lab: {text}", fg="red", err=True, color=colour)
        sys.exit(2)


def in_one_line(error: BaseException) -> str | None:
    """What to tell somebody about an error that is not a fault of the program; else `None`."""
    if isinstance(error, LabError):
        return str(error)
    if isinstance(error, BaseExceptionGroup):
        return in_one_line(error.exceptions[0])
    if isinstance(error, OSError):
        return _of_the_system(error)
    if isinstance(error, UnicodeDecodeError):
        return f"a file is not {error.encoding} text (byte {error.start}); save it as UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object[error.start : error.end]!r} cannot be written as {error.encoding}"
    if isinstance(error, json.JSONDecodeError):
        return f"a file is not JSON: {error}"
    if type(error).__name__ == "SafetensorError":  # not imported here: torch takes seconds
        return f"weights could not be read or written: {' '.join(str(error).split())}"
    return None


def _of_the_system(error: OSError) -> str:
    number = error.errno if isinstance(error.errno, int) else 0
    what = error.strerror or " ".join(str(error).split()) or type(error).__name__
    names = [
        os.fsdecode(n) for n in (error.filename, error.filename2) if isinstance(n, str | bytes)
    ]
    place = f"{' -> '.join(names)}: " if names else ""
    hint = WHAT_TO_DO.get(number)
    return f"{place}{what}" + (f"; {hint}" if hint else "")
