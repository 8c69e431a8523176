"""A standalone page: one HTML file that fetches nothing and runs only what it was built with.

Invariant: the policy starts from `default-src 'none'`; the page's own style and script are allowed
by the hash of their exact text, pictures only as `data:`. So a page cannot phone home, and text of
an episode that looks like markup cannot run even if it were not escaped (it is).
"""

import base64
import hashlib
import json
from html import escape
from pathlib import Path
from typing import Any

from cua_lab.files import write_text

STATIC = Path(__file__).parent / "static"


def asset(name: str) -> str:
    """The text of a file in `static/`."""
    return (STATIC / name).read_text(encoding="utf-8")


def json_block(element_id: str, value: Any) -> str:
    """JSON in a data block, which never runs; `<` is escaped so that no text can end the block."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<script type="application/json" id="{escape(element_id)}">{text}</script>'


def viewer_block(element_id: str, payload: dict[str, Any]) -> str:
    """A mask viewer's place on the page and its data; the page needs `script=viewer_script()`."""
    return f'<div data-viewer="{escape(element_id)}"></div>\n{json_block(element_id, payload)}'


def viewer_script() -> str:
    """The viewer's JavaScript as a module that starts itself."""
    return asset("viewer.js") + "\nboot();\n"


def page(*, title: str, body: str, style: str, script: str = "") -> str:
    """A whole HTML document around `body` (trusted, already escaped markup)."""
    script_rule = f"script-src '{_hash(script)}'; " if script else ""
    policy = (
        f"default-src 'none'; {script_rule}style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    script_tag = f'<script type="module">{script}</script>' if script else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
{body}
{script_tag}
</body>
</html>
"""


def write_page(path: str | Path, html: str) -> Path:
    """Write, then rename: a reader never sees half a page."""
    return write_text(path, html)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
