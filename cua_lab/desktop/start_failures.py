"""Why a desktop did not start: its programs' own last words, and what helps against the known ones.

Invariant: whatever ended the start, the error carries what the programs wrote to their logs, which
are removed with the desktop.
"""

from __future__ import annotations

from cua_lab.desktop.cdp import BrowserError
from cua_lab.errors import LabError

LINES = 12
REMEDIES = (
    (
        "sandbox",
        "Chromium's sandbox needs user namespaces: `sudo sysctl -w "
        "kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu), `sudo sysctl -w "
        "kernel.unprivileged_userns_clone=1` (older Debian), or in a container run it as root or "
        "with --security-opt seccomp=unconfined",
    ),
    ("shared libraries", "a library is missing: on Debian `apt-get install --reinstall chromium`"),
    ("No space left", "the disk or /dev/shm is full: free some space"),
    ("process_singleton", "set TMPDIR to a short path that can be written, such as /tmp"),
    ("Missing X server", "the X server ended: see its words, and `cua-lab doctor`"),
)
"""What a log says, and what to do about it."""


class DesktopNotStarted(BrowserError, LabError):
    """A desktop did not start: its programs' last words, and what to do."""


def not_started(cause: BaseException, browser_log: str, xvnc_log: str) -> DesktopNotStarted:
    """The error to raise; logs are the ends of what the programs wrote."""
    name, words = ("browser", browser_log) if browser_log.strip() else ("X server", xvnc_log)
    said = f"the {name}'s last words:\n{telling(words)}" if words.strip() else "it left no words"
    help_ = next((fix for sign, fix in REMEDIES if sign in words), "see `cua-lab doctor`")
    why = str(cause).splitlines()[0] if str(cause) else "it did not answer in time"
    return DesktopNotStarted(f"the desktop did not start: {why}; {said}\nWhat helps: {help_}")


def telling(log: str) -> str:
    """The lines that say why: those marked as fatal, else the last ones."""
    lines = [line for line in log.splitlines() if line.strip()]
    fatal = [line for line in lines if ":FATAL:" in line or "error while loading" in line]
    return "\n".join((fatal or lines)[-LINES:])
