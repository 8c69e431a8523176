"""The widget, its static copy and its standalone page."""

import hashlib
import json
import re
from base64 import b64encode
from html.parser import HTMLParser

import pytest

from cua_lab.viz import mask_viewer, page
from cua_lab.viz.fallback import MAX_TOKENS
from tests.viz.episodes import WordCodec, episode, frame, long_episode

HOSTILE = '</script><img src=x onerror="alert(1)"><b>'
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def viewer():
    codec = WordCodec()
    frames = [frame(i) for i in range(3)]
    return mask_viewer(episode(3, codec=codec, hostile=HOSTILE), codec, images=frames)


class Tags(HTMLParser):
    """Every start tag with its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_the_repr_says_what_is_shown_and_nothing_that_changes(viewer):
    """Strict nbval compares text/plain: an address or a model id would break it."""
    text = repr(viewer)
    assert text.startswith("MaskViewer('Stitched episode', episode: 30 prompt + ")
    assert "0x" not in text
    assert viewer.model_id not in text


def test_a_reopened_notebook_finds_html_and_text_beside_the_widget(viewer):
    """ipywidgets#3823: without its model a widget view shows only an error."""
    data, _ = viewer._repr_mimebundle_()
    assert set(data) == {WIDGET, "text/html", "text/plain"}
    assert viewer.model_id not in data["text/html"] + data["text/plain"]


def test_the_static_copy_is_the_same_every_time_and_shows_every_token_of_a_short_episode(viewer):
    html = viewer._repr_mimebundle_()[0]["text/html"]
    assert html == viewer._repr_mimebundle_()[0]["text/html"]
    assert html.count("&lt;tool_call&gt;") == 3
    assert html.count("turn 0 policy") == 2
    assert "divergence" in html


def test_the_static_copy_lets_no_token_become_markup(viewer):
    html = viewer._repr_mimebundle_()[0]["text/html"]
    tags = Tags(html).tags
    assert {tag for tag, _ in tags} <= {"div", "p", "b", "i", "span", "img", "code", "sub", "br"}
    assert all("onerror" not in attributes for _, attributes in tags)
    assert all(a["src"].startswith("data:image/png") for tag, a in tags if tag == "img")


def test_the_static_copy_of_a_long_episode_is_capped_and_says_so():
    codec = WordCodec()
    viewer = mask_viewer(long_episode(5000, codec), codec)
    html = viewer._repr_mimebundle_()[0]["text/html"]
    assert "more tokens" in html
    assert html.count("<span") <= MAX_TOKENS + 40
    assert len(html) < 100_000


def test_the_page_allows_its_own_style_and_script_by_hash_and_nothing_else(viewer, tmp_path):
    html = viewer.save_html(tmp_path / "viewer.html").read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for name, tag in (("script-src", 'script type="module"'), ("style-src", "style")):
        text = re.search(rf"<{tag}>(.*?)</{tag.split()[0]}>", html, re.S)[1]
        digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"


def test_the_page_asks_nobody_for_anything(viewer, tmp_path):
    html = viewer.save_html(tmp_path / "viewer.html").read_text()
    for _, attributes in Tags(html).tags:
        for name in ("src", "href", "action"):
            assert (attributes.get(name) or "data:").startswith("data:")
    without_names = html.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest", without_names)


def test_no_token_can_end_the_data_block(viewer, tmp_path):
    html = viewer.save_html(tmp_path / "viewer.html").read_text()
    block = re.search(
        r'<script type="application/json" id="viewer-data">(.*?)</script>', html, re.S
    )
    assert json.loads(block[1]) == viewer.payload
    assert HOSTILE in viewer.payload["vocab"].values()


def test_everything_that_takes_the_focus_is_made_by_the_one_function_that_keeps_keys_inside():
    """JupyterLab looks at the focused element itself: an "a" typed elsewhere adds a cell."""
    script = page.asset("viewer.js")
    made = re.findall(r'(?<!focusable)\bel\("(button|input|select|textarea|summary|a)"', script)
    assert made == []
    assert "tabindex" not in re.sub(r"focusable\([^;]*?\}\)", "", script, flags=re.S)


def test_no_text_is_put_in_as_markup():
    script = page.asset("viewer.js")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", script)
