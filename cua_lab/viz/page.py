"""A standalone page: one HTML file that fetches nothing and runs only what it was built with.

Invariant: the policy starts from `default-src 'none'`; the page's own style and script are allowed
by the hash of their exact text, pictures only as `data:`. So a page cannot phone home, and text of
an episode that looks like markup cannot run even if it were not escaped (it is).
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cua_lab.files import write_text
from cua_lab.viz.payload import with_shown
from cua_lab.viz.visible import visible, visible_label

STATIC = Path(__file__).parent / "static"


def asset(name: str) -> str:
    """The text of a file in `static/`."""
    return (STATIC / name).read_text(encoding="utf-8")


def render(template: str, **values: Any) -> str:
    """A template of `static/`; every value is escaped but `Markup`."""
    text = _environment().get_template(template).render(**values)
    # A lone surrogate, which a model can say, cannot be written: a replacement mark is seen.
    return text.encode("utf-8", errors="xmlcharrefreplace").decode("utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(STATIC),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = visible_label
    environment.filters["token"] = visible
    return environment


def json_block(element_id: str, value: Any) -> str:
    """JSON in a data block, which never runs; `<` is escaped so that no text can end the block."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    text = "".join(c if not "\ud800" <= c <= "\udfff" else f"\\u{ord(c):04x}" for c in text)
    tag = Markup('<script type="application/json" id="{}">{}</script>')
    return str(tag.format(element_id, Markup(text)))


def viewer_block(element_id: str, payload: dict[str, Any]) -> str:
    """A mask viewer's place on the page and its data; the page needs `script=viewer_script()`."""
    place = Markup('<div data-viewer="{}"></div>\n').format(element_id)
    return str(place) + json_block(element_id, with_shown(payload))


def viewer_script() -> str:
    """The viewer's JavaScript as a module that starts itself."""
    return asset("viewer.js") + "\nboot();\n"


def page(*, title: str, body: str, style: str, script: str = "") -> str:
    """A whole HTML document around `body` (trusted, already escaped markup)."""
    return page_of("page.html.jinja", title=title, body=Markup(body), style=style, script=script)


def page_of(
    template: str, *, title: str, style: str | None = None, script: str = "", **values: Any
) -> str:
    """A whole HTML document from a template that extends `page.html.jinja`, by default in the
    pages' one stylesheet."""
    style = asset("report.css") if style is None else style
    return render(
        template,
        title=visible_label(title),
        policy=Markup(_policy(style, script)),
        style=Markup(style),
        script=Markup(script),
        **values,
    )


def _policy(style: str, script: str) -> str:
    script_rule = f"script-src '{_hash(script)}'; " if script else ""
    return (
        f"default-src 'none'; {script_rule}style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def write_page(path: str | Path, html: str) -> Path:
    """Write, then rename: a reader never sees half a page."""
    return write_text(path, html)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
