"""The mask viewer without JavaScript: what GitHub, nbviewer and a reopened notebook show.

Plain HTML with inline styles and a cap on the tokens printed. Each run of tokens opens with its
role in words, so the page still reads where styles are stripped; every coloured token carries
both its background and its ink, so it reads in a dark theme too.
"""

from collections.abc import Iterator
from html import escape
from typing import Any

STYLES = {
    "prompt": "background:#eef0f3;color:#000",
    "policy": "background:#ffe08a;color:#000;font-weight:bold;border-bottom:2px solid #4a4f58",
    "scaffold": "background:#d9e8fb;color:#000;border-bottom:2px dotted #4a4f58",
    "image": "background:#d8f3dc;color:#000;border:1px dashed #4a4f58",
    "resynced": "background:#fbdcec;color:#000;text-decoration:underline wavy #4a4f58",
}
GLYPHS = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥", "\r": "␍", "\u200b": "‹U+200B›"})
MAX_TOKENS = 400
MAX_RUN = 80
MAX_IMAGES = 6


def fallback_html(payload: dict[str, Any]) -> str:
    """The payload as static HTML; long runs and long episodes are cut, and say so."""
    title = escape(payload["title"])
    members = "".join(_member(member, payload["vocab"]) for member in payload["members"][:2])
    more = len(payload["members"]) - 2
    rest = f"<p>… and {more} more members.</p>" if more > 0 else ""
    return (
        '<div style="font-family:monospace;line-height:1.8">'
        f'<p style="font-family:sans-serif"><b>{title}</b> (static copy; run the cell for the'
        f" interactive viewer)</p>{members}{rest}</div>"
    )


def summary(member: dict[str, Any]) -> str:
    """One line of counts that add up: `12 prompt + 5 policy = 17 tokens, 5 trained, ...`."""
    counts = member["counts"]
    roles = " + ".join(f"{counts[role]} {role}" for role in STYLES if counts[role])
    return (
        f"{roles} = {counts['total']} tokens, {counts['trained']} trained,"
        f" {counts['images']} images, {counts['turns']} turns,"
        f" {len(member['divergences'])} divergences"
    )


def _member(member: dict[str, Any], vocab: dict[str, str]) -> str:
    lines = "".join(_rows(member, vocab))
    return f"<p>{escape(member['name'])}: {escape(summary(member))}</p>{lines}"


def _rows(member: dict[str, Any], vocab: dict[str, str]) -> Iterator[str]:
    left, pictures = MAX_TOKENS, MAX_IMAGES
    for index, (role, start, end, turn, _weights) in enumerate(member["segments"]):
        if left <= 0:
            yield f"<div>… {member['counts']['total'] - start} more tokens</div>"
            return
        head = f"<i>turn {turn} {role}</i> "
        if role == "image":
            image = member["images"].get(str(index))
            yield f"<div>{head}{_image(image if pictures else None, end - start)}</div>"
            pictures -= image is not None
            left -= 1
        else:
            shown = min(end - start, MAX_RUN, left)
            texts = (vocab[str(token)] for token in member["ids"][start : start + shown])
            cut = f" … {end - start - shown} more" if shown < end - start else ""
            yield f"<div>{head}{' '.join(_token(role, text) for text in texts)}{cut}</div>"
            left -= shown
        yield from (_divergence(d) for d in member["divergences"] if d["at"] == index)


def _token(role: str, text: str) -> str:
    return f'<span style="{STYLES[role]}">{escape(text.translate(GLYPHS)) or "∅"}</span>'


def _image(image: dict[str, Any] | None, tokens: int) -> str:
    chip = f'<span style="{STYLES["image"]}">▣ {tokens} image tokens</span>'
    if image is None:
        return chip
    label = escape(image["label"] or "no action")
    return (
        f'{chip} {image["width"]} × {image["height"]} px → {label} <img src="{image["src"]}"'
        f' alt="screenshot, {label}" width="96" style="vertical-align:middle">'
    )


def _divergence(divergence: dict[str, Any]) -> str:
    def side(name: str) -> str:
        return " ".join(
            f"<code>{escape(text.translate(GLYPHS))}</code><sub>{token}</sub>"
            for token, text in divergence[name]
        )

    kind = escape(divergence["kind"].replace("_", " "))
    return (
        f'<div style="border-left:4px double;padding-left:8px"><b>divergence, turn'
        f" {divergence['turn']}: {kind}</b><br>emitted {side('emitted')}<br>re-rendered"
        f" {side('rendered')}</div>"
    )
