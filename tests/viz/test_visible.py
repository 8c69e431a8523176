"""No character hides: in the viewer, its static copy, a film strip, a figure or the report."""

import json
import re
import unicodedata
from dataclasses import replace
from html import unescape

import pytest
from PIL import ImageDraw

from cua_lab.lessons.pushes import shown
from cua_lab.lessons.token_bars import token_bars
from cua_lab.viz import mask_viewer
from cua_lab.viz.filmstrip import CELL, _wrap, filmstrip
from cua_lab.viz.frames import Frame, action_label
from cua_lab.viz.page import page_of
from cua_lab.viz.visible import plot_text, visible, visible_label
from tests.viz.episodes import WordCodec, board, episode, frame

HIDING = {
    "a tag": "\U000e0049",
    "a variation selector": "\ufe0f",
    "a joiner of graphemes": "\u034f",
    "a Hangul filler": "\u3164",
    "a blank of Braille": "\u2800",
    "an ideographic space": "\u3000",
    "a no-break space": "\u00a0",
    "a soft hyphen": "\u00ad",
    "a turn of the direction": "\u202e",
    "an isolate": "\u2066",
    "a zero width joiner": "\u200d",
    "a byte order mark": "\ufeff",
    "a line separator": "\u2028",
    "a lone surrogate": "\ud83d",
    "a C1 control": "\u0085",
    "a Mongolian selector": "\u180b",
    "a private letter": "\ue000",
    "a noncharacter": "\ufffe",
    "an annotation": "\ufff9",
    "a Khmer vowel": "\u17b4",
}
ALL = "".join(HIDING.values())


@pytest.mark.parametrize("name", HIDING)
def test_a_character_that_draws_nothing_is_shown_by_its_code_point(name):
    """NVIDIA/SkillSpector#169, kayba-ai/agentic-context-engine#4576."""
    character = HIDING[name]
    code = f"‹U+{ord(character):04X}›"
    assert visible(f"a{character}b") == visible_label(f"a{character}b") == f"a{code}b"


def test_white_space_has_signs_and_a_labels_spaces_stay():
    assert visible(" a\n\t\r\x00\x1b") == "·a↵⇥␍␀␛"
    assert visible_label("a b\nc") == "a b↵c"
    assert (visible(""), visible_label("")) == ("∅", "")


def test_what_can_be_seen_is_left_as_it_is():
    text = "abc é ü 東京 עברית العربية 🙂 ñ ⟨|⟩ ‹›".replace(" ", "")
    assert visible(text) == text
    assert visible(visible(ALL)) == visible(ALL)


def test_every_code_point_is_shown_or_is_no_control():
    for code in range(0x110000):
        character = chr(code)
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs"):
            assert visible(character) != character


def test_the_payload_brings_the_visible_text_of_each_token():
    codec = WordCodec()
    payload = mask_viewer(episode(2, codec=codec, hostile="\u202eabc"), codec).payload
    (hostile,) = [token for token, text in payload["vocab"].items() if "\u202e" in text]
    assert payload["shown"][hostile] == "‹U+202E›abc"
    assert set(payload["shown"]) <= set(payload["vocab"]) | {
        str(token) for d in payload["members"][0]["divergences"] for token, _ in d["emitted"]
    }


def test_nothing_hides_in_the_static_copy_nor_in_names_and_labels():
    codec = WordCodec()
    frames = [Frame.of(board(i), {"action": "type", "text": ALL}) for i in range(3)]
    members = [replace(episode(3, codec=codec, hostile=ALL.replace("\ud83d", "")))]
    viewer = mask_viewer(members, codec, images=[frames], names=[ALL], title=ALL)
    html = unescape(viewer._repr_mimebundle_()[0]["text/html"])
    assert not set(ALL) & set(html)
    assert html.count("‹U+202E›") >= 4
    payload = dict(viewer.payload, vocab={})
    assert not set(ALL) & set(json.dumps(payload, ensure_ascii=False))


@pytest.mark.parametrize(
    "action",
    [
        {"action": ALL},
        {"action": "type", "text": ALL},
        {"action": "press", "keys": [ALL]},
        {"action": "press", "keys": ALL},
        {"action": "press", "keys": 7},
        {"action": "click", "x": ALL, "y": 1},
    ],
)
def test_a_label_of_whatever_a_model_said_hides_nothing(action):
    shot = Frame.of(board(0), action)
    assert not set(ALL) & set(action_label(action) + shot.label + "".join(shot.keys))


def test_a_caption_stays_in_its_column(monkeypatch):
    drawn = []
    whole = ImageDraw.ImageDraw.multiline_text

    def recording(self, at, text, **options):
        drawn.append(max(self.textlength(line, font=options["font"]) for line in text.split("\n")))
        drawn.append(text.count("\n"))
        return whole(self, at, text, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "multiline_text", recording)
    texts = ["w" * 500, "a " + "https://example.com/" + "x" * 90, "one two three " * 9, ALL * 3]
    filmstrip([Frame(board(i), label=text) for i, text in enumerate(texts)])
    assert len(drawn) == 2 * len(texts)
    assert max(drawn[::2]) <= CELL
    assert max(drawn[1::2]) <= 1


def test_a_short_caption_is_one_line_and_a_cut_one_ends_in_an_ellipsis():
    draw = ImageDraw.Draw(board(0))
    assert _wrap(draw, "0 · press left", CELL, limit=2) == ["0 · press left"]
    lines = _wrap(draw, "w" * 500, CELL, limit=2)
    assert len(lines) == 2
    assert lines[-1].endswith("…")


def test_labels_of_figures_hide_nothing_and_are_no_mathematics():
    labels = [
        tick.get_text() for tick in token_bars([ALL, "$x$"], [0.5, 0.9]).axes[0].get_yticklabels()
    ]
    assert not set(ALL) & set("".join(labels))
    assert labels[1] == r"\$x\$" == plot_text("$x$")
    assert shown("$\u202e") == r"\$‹U+202E›"
    assert plot_text("東a") == "□a"


def test_a_page_with_a_lone_surrogate_can_be_written(tmp_path):
    """NousResearch/hermes-agent#104134: a sampled half of a character ended the report."""
    payload = {"text": "\ud83d</script>", "shown": {}}
    html = page_of("viewer.html.jinja", title="a\ud83d", payload=payload)
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    assert "<title>a‹U+D83D›</title>" in html
    found = re.search(r'id="viewer-data">(.*?)</script>', html)
    assert json.loads(found[1]) == payload


def test_a_viewer_with_a_lone_surrogate_can_be_saved(tmp_path):
    codec = WordCodec()
    shots = [Frame.of(board(i), {"action": "type", "text": "\ud83d"}) for i in range(2)]
    viewer = mask_viewer(episode(2, codec=codec), codec, images=shots, title="\ud83d")
    assert "‹U+D83D›" in viewer.save_html(tmp_path / "a.html").read_text(encoding="utf-8")


def test_an_ordinary_frame_is_labelled_as_before():
    assert frame(0).label == "click (492, 164)"
    assert action_label({"action": "type", "text": "a\tb\n"}) == "type “a⇥b↵”"
