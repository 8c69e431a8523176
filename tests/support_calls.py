"""What a policy says to act: the text of a tool call, as the small policy's template renders it."""

import json
from typing import Any


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """The canonical text of one call."""
    body = json.dumps(arguments, ensure_ascii=False)
    return f'<tool_call>\n{{"name": "{name}", "arguments": {body}}}\n</tool_call>'
