"""The widget, its static copy and its standalone page."""

import hashlib
import json
import re
from base64 import b64encode
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image, ImageColor

from cua_lab.pictures import read_data_url, read_rgb, size_of
from cua_lab.viz import mask_viewer, page
from cua_lab.viz.fallback import MAX_TOKENS
from cua_lab.viz.frames import Frame
from cua_lab.viz.token_picture import FILL
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


def test_the_static_copy_stays_small_whatever_the_screens_are():
    """Screens of 1280x800 of noise were embedded at 768 px: 20 MB for what is drawn at 96."""
    noise = np.random.default_rng(0).integers(0, 256, (3, 800, 1280, 3), dtype=np.uint8)
    codec = WordCodec()
    frames = [Frame(Image.fromarray(picture)) for picture in noise]
    html = mask_viewer(episode(3, codec=codec), codec, images=frames)._repr_mimebundle_()[0][
        "text/html"
    ]
    assert len(html) < 400_000
    sizes = [size_of(read_data_url(a["src"])) for tag, a in Tags(html).tags if tag == "img"]
    assert sizes[1:] == [(192, 120)] * 3


def test_the_static_copy_reads_where_styles_are_stripped():
    """github.com strips style attributes: a picture of the tokens and the roles in words stay."""
    codec = WordCodec()
    viewer = mask_viewer(episode(3, codec=codec, hostile="long " * 90), codec)
    html = re.sub(r' style="[^"]*"', "", viewer._repr_mimebundle_()[0]["text/html"])
    tags = Tags(html).tags
    (picture,) = [a for tag, a in tags if tag == "img"]
    assert picture["alt"].startswith("The tokens of episode, coloured by role: 30 prompt + ")
    drawn = read_rgb(read_data_url(picture["src"]))
    assert int(picture["width"]) == drawn.width // 2
    colours = {
        drawn.getpixel((x, y)) for x in range(0, drawn.width, 5) for y in range(0, drawn.height, 5)
    }
    assert {
        ImageColor.getrgb(FILL[look]) for look in ("prompt", "policy", "thought", "resynced")
    } <= colours
    assert re.search(r"\(5\d\d characters, 24 tokens\)", html)
    assert "long " * 40 not in html
    assert all(a.get("alt") for tag, a in tags if tag == "img")


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
