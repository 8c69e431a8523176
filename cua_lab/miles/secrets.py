"""Keeping a key out of texts that others write: error messages and log records.

The plug-in passes paths only, but a provider may quote the key in an error, and HUD logs errors.
Invariant: once `hide` was called, no log record of this process shows the key.
"""

from __future__ import annotations

import logging
import os
import traceback
from typing import Any

from cua_lab.play.api_keys import DAYTONA_KEY

INSTEAD = "<the Daytona key>"


def redacted(text: str) -> str:
    """The text without the key."""
    key = os.environ.get(DAYTONA_KEY)
    return text.replace(key, INSTEAD) if key else text


def hide() -> None:
    """Redact every log record from now on; calling it again changes nothing."""
    make = logging.getLogRecordFactory()
    if getattr(make, "redacts", False):
        return

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        return _clean(make(*args, **kwargs))

    factory.redacts = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(factory)


def _clean(record: logging.LogRecord) -> logging.LogRecord:
    key = os.environ.get(DAYTONA_KEY)
    if not key:
        return record
    message = record.getMessage()
    if key in message:
        record.msg, record.args = redacted(message), ()
    if record.exc_info and record.exc_info[0] is not None:
        text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
        if key in text:
            record.exc_info, record.exc_text = None, redacted(text)
    return record
