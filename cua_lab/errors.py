"""Errors for people.

A `LabError` is a mistake somebody can mend: its text says what was found, what was expected and
what to do next. The CLI prints it as one line and exits with status 2; nothing else in the package
turns an exception into data.
"""

from __future__ import annotations


class LabError(Exception):
    """A user's mistake or a missing part: got, expected, what to do."""
