"""What both directions of the wire share: the error of a bad request, and what an answer must hold.

The dialect is sglang's: fields and error texts are those of recorded sglang 0.5.23 answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cua_lab.errors import LabError

Body = dict[str, Any]


class WireError(LabError):
    """A request that is answered with 400; `type` as sglang labels it."""

    def __init__(self, message: str, type: str = "BadRequestError") -> None:
        super().__init__(message)
        self.type = type


def json_bytes(value: Any, *, allow_nan: bool = True) -> bytes:
    """JSON as UTF-8; where half of a surrogate pair is in it, which has none, all in ASCII."""
    compact = (",", ":")
    text = json.dumps(value, ensure_ascii=False, allow_nan=allow_nan, separators=compact)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=allow_nan, separators=compact).encode()


def error_body(error: LabError) -> Body:
    """A 400's body."""
    type = error.type if isinstance(error, WireError) else "BadRequestError"
    return {"object": "error", "message": str(error), "type": type, "param": None, "code": 400}


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """What of the answer a chat request asked for."""

    model: str
    tools: tuple[str, ...] = ()
    logprobs: bool = False
    top: int = 0
    prompt_ids: bool = False
    output_ids: bool = False
    meta_info: bool = False
    stream: bool = False
    stream_usage: bool = False
    skip_special: bool = True
    trim_stop: bool = True
