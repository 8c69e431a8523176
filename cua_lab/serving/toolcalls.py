"""Reading tool calls out of sampled text, as sglang's `qwen25` parser does.

A call is `<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>`, any number of them after
the text. What such a server loses is lost here too, on purpose: once an opening tag is seen, only
the text before it and the calls that parse are kept, so a malformed or truncated call leaves an
empty message. The ids are always right, which is why training reads ids and never this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

OPEN = "<tool_call>\n"
CLOSE = "\n</tool_call>"
_SURROGATES = re.compile("[\ud800-\udfff]")
_CALL = re.compile(re.escape(OPEN) + "(.*?)" + re.escape(CLOSE), re.DOTALL)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One parsed call; `arguments` is JSON text, re-serialised."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The message that is left after parsing."""

    text: str
    calls: tuple[ToolCall, ...]


def parse_tool_calls(text: str, tools: Collection[str]) -> Parsed:
    """Split sampled text into the words before the first call and the calls to known `tools`."""
    start = text.find(OPEN)
    if start < 0:
        return Parsed(text, ())
    calls = [call for body in _CALL.findall(text) for call in _read_call(body.strip(), tools)]
    return Parsed(text[:start].strip(), tuple(calls))


def _read_call(body: str, tools: Collection[str]) -> list[ToolCall]:
    """The calls in one block: none if it is not JSON; a list holds several."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):  # also numbers of more than 4300 digits
        return []
    actions = value if isinstance(value, list) else [value]
    return [
        ToolCall(action["name"], _arguments(action))
        for action in actions
        if isinstance(action, dict) and _known(action.get("name"), tools)
    ]


def _known(name: object, tools: Collection[str]) -> bool:
    return isinstance(name, str) and name in tools


def _arguments(action: dict[str, Any]) -> str:
    """JSON text; half of a surrogate pair stays the escape that was sampled: it has no UTF-8."""
    text = json.dumps(action.get("parameters") or action.get("arguments", {}), ensure_ascii=False)
    return _SURROGATES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
