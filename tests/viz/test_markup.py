"""Markup is written by templates, which escape; no Python of the package makes a tag."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cua_lab
from cua_lab.viz.page import STATIC

PACKAGE = Path(cua_lab.__file__).parent
TAGS = (
    "a|b|body|br|button|circle|code|dd|details|div|dl|dt|em|figcaption|figure|footer|form|g|h[1-6]"
    "|head|header|html|i|iframe|img|input|label|li|line|link|main|mark|meta|nav|ol|p|path|polygon"
    "|polyline|pre|rect|script|section|small|span|strong|style|sub|summary|sup|svg|table|tbody|td|text"
    "|tfoot|th|thead|title|tr|ul|video"
)
TAG = re.compile(rf"</?({TAGS})(\s[^<]*)?/?>|<({TAGS})\s+[a-z-]+=")
ALLOWED = {
    "bench/browser_bench.py": "pages for a real browser to show: what is measured there",
    "starter/__init__.py": "a line put into the user's own page; an example in an error",
}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "envs" not in path.parts)


def texts(source: str) -> Iterator[str]:
    """Every string of a module, those inside f-strings too, but for docstrings."""
    tree = ast.parse(source)
    plain = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in plain:
            yield node.value


def hand_made(source: str) -> list[str]:
    """Strings of a module that hold a tag, and its imports of an escaping function."""
    found = [text for text in texts(source) if TAG.search(text)]
    return found + re.findall(r"^\s*(?:from html import .*|import html\b.*)$", source, re.M)


def test_what_counts_as_hand_made():
    assert hand_made('x = f"<b>{name}</b>"') == ["<b>", "</b>"]
    assert hand_made("x = '<img src=\"a\">'")
    assert hand_made("x = f'<td{n}>'") == []  # cut in two by a value: its neighbours are found
    assert hand_made('"""A <b>docstring</b>."""\nx = "<tool_call> <image> a < b"') == []
    assert hand_made("from html import escape") == ["from html import escape"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_makes_markup_by_hand(path):
    found = hand_made(path.read_text(encoding="utf-8"))
    assert bool(found) == (str(path.relative_to(PACKAGE)) in ALLOWED), found


def test_only_the_page_marks_text_as_safe():
    marking = [path.relative_to(PACKAGE) for path in FILES if "Markup" in path.read_text()]
    assert [str(path) for path in marking] == ["viz/page.py"]


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.jinja")), ids=lambda path: path.name)
def test_no_template_turns_escaping_off(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\|\s*safe\b|autoescape", text)
