"""A server's answer as HUD can read it: whatever was sampled, the worst of it is a bad call.

JSON can spell what the rest of the way cannot carry: half of a surrogate pair (`"\\ud83d"`), a
number of more than 4,300 digits, 1,000 nested brackets. HUD's loop would end as a failed episode
there, with the policy's mistake in none of the statistics. Invariant: an ordinary answer stays as
it is; of another one the call stays a call, which the tool or HUD's own check then refuses.
"""

from __future__ import annotations

import json
import re
from typing import Any

SHOWN = 200
"""Characters of unreadable arguments that are kept: enough to see what was tried."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """Halves of surrogate pairs as their escapes: within JSON the same value, and valid UTF-8."""
    return _SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def readable(body: dict[str, Any]) -> dict[str, Any]:
    """A chat completion whose texts are UTF-8 and whose arguments are JSON or cut short."""
    for choice in body.get("choices") or ():
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            continue
        if isinstance(message.get("content"), str):
            message["content"] = without_surrogates(message["content"])
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("arguments"), str):
                function["arguments"] = _arguments(without_surrogates(function["arguments"]))
    return body


def _arguments(text: str) -> str:
    """The same, unless Python's reader gives up on it: then its start, which is no JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return text  # HUD has a word for it: a malformed call
    except (ValueError, RecursionError):
        return f"{text[:SHOWN]} …"
    return text
