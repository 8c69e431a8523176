"""Why an engine died, from its log: the exception, not whatever was printed after it.

A dying vLLM prints its cause, then a traceback that refers to it, then a hundred lines about leaked
objects. Invariant: the answer is part of the log, at most `LINES` lines of `WIDTH` characters.
"""

from __future__ import annotations

import re

LINES, WIDTH = 6, 400
CAUSE = re.compile(r"(?:^|[\s\].])(?:\w+\.)*\w*(?:Error|Exception|error|Killed)\b\s*:|\berror: ")
ELSEWHERE = re.compile(
    r"see (?:the )?(?:root cause|stack trace)|root cause\(?s?\)? above|initialization failed", re.I
)
"""An error that only points at another one."""
NOISE = re.compile(
    r"leaked|nanobind|resource_tracker|warnings\.warn|tool_parser\.py|^\s*$|^\s*\^+\s*$"
)
"""Among it the traceback that vLLM logs for each malformed call of a model."""
PREFIX = re.compile(r"^\(\w+ pid=\d+\)\s*|(?:ERROR|INFO|WARNING) [\d-]+ [\d:]+ \[[^\]]*\]\s*")


def last_words(log: str) -> str:
    """The last error of a log with the lines that belong to it; else its end."""
    kept = [line for line in log.splitlines() if not NOISE.search(line)]
    lines = [plain for line in kept if not NOISE.search(plain := _plain(line))]
    found = [index for index, line in enumerate(lines) if CAUSE.search(line)]
    causes = [index for index in found if not ELSEWHERE.search(lines[index])]
    if not found:
        return "\n".join(line[:WIDTH] for line in lines[-LINES:])
    at = (causes or found)[-1]
    return "\n".join(line[:WIDTH] for line in lines[max(0, at - 2) : at + LINES - 2])


def _plain(line: str) -> str:
    """Without colours and the logger's own head."""
    return PREFIX.sub("", re.sub(r"\x1b\[[0-9;]*m", "", line)).rstrip()
