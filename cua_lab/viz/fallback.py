"""The mask viewer without JavaScript: what GitHub, nbviewer and a reopened notebook show.

Per member a picture, which survives where styles do not, and plain HTML with inline styles and a
cap on the tokens printed. Each run of tokens opens with its role in words, so the text still reads
where styles are stripped; every coloured token carries both its background and its ink, so it reads
in a dark theme too. A long prompt is folded to its beginning.

Invariant: a copy stays small (screenshots are stored at twice the width at which they are drawn),
and says what it leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cua_lab.pictures import data_url, png_bytes, read_data_url, read_rgb
from cua_lab.viz.page import render
from cua_lab.viz.token_picture import PALETTE, token_picture
from cua_lab.viz.visible import visible, visible_label

STYLES = {
    "prompt": "background:#eef0f3;color:#000",
    "policy": "background:#ffe08a;color:#000;font-weight:bold;border-bottom:2px solid #4a4f58",
    "scaffold": "background:#d9e8fb;color:#000;border-bottom:2px dotted #4a4f58",
    "image": "background:#d8f3dc;color:#000;border:1px dashed #4a4f58",
    "resynced": "background:#fbdcec;color:#000;text-decoration:underline wavy #4a4f58",
}
THOUGHT = "background:#fff3c9;color:#000;font-style:italic;border-bottom:2px solid #4a4f58"
"""A policy token before its call."""
MAX_MEMBERS = 2
MAX_TOKENS = 400
MAX_RUN = 80
MAX_IMAGES = 6
THUMB = 192
"""Pixels of a stored screenshot: twice the 96 at which it is drawn."""
FOLDED = 160
"""Characters of a prompt from which on only its beginning is printed."""

Row = dict[str, Any]


def fallback_html(payload: dict[str, Any]) -> str:
    """The payload as static HTML; long runs and long episodes are cut, and say so."""
    members = payload["members"][:MAX_MEMBERS]
    return render(
        "static_copy.html.jinja",
        title=visible_label(payload["title"]),
        members=[_member(member, payload["vocab"]) for member in members],
        more=len(payload["members"]) - len(members),
        styles=STYLES | {"thought": THOUGHT},
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


def _member(member: dict[str, Any], vocab: dict[str, str]) -> dict[str, Any]:
    image = token_picture(member, vocab)
    picture = {
        "source": data_url(png_bytes(image, compress_level=9, palette=PALETTE)),
        "width": image.width // 2,
        "alt": f"The tokens of {member['name']}, coloured by role: {summary(member)}",
    }
    return {
        "name": member["name"],
        "summary": summary(member),
        "rows": list(_rows(member, vocab)),
        "picture": picture,
    }


def _rows(member: dict[str, Any], vocab: dict[str, str]) -> Iterator[Row]:
    left, pictures = MAX_TOKENS, MAX_IMAGES
    for index, (role, start, end, turn, _weights) in enumerate(member["segments"]):
        if left <= 0:
            yield {"kind": "more", "left": member["counts"]["total"] - start}
            return
        here = {"turn": turn, "role": role, "tokens": end - start}
        if role == "image":
            image = member["images"].get(str(index)) if pictures else None
            yield here | _image(image)
            pictures -= image is not None
            left -= 1
        else:
            row = _tokens(member, vocab, role, start, min(end, start + min(MAX_RUN, left)), end)
            yield here | row
            left -= len(row["texts"]) + len(row["thought"])
        yield from (_divergence(d) for d in member["divergences"] if d["at"] == index)


def _tokens(
    member: dict[str, Any], vocab: dict[str, str], role: str, start: int, stop: int, end: int
) -> Row:
    texts = [vocab[str(token)] for token in member["ids"][start:end]]
    whole = "".join(texts)
    if role == "prompt" and len(whole) > FOLDED:
        beginning = visible_label(" ".join(whole[:FOLDED].split()))
        folded = {"kind": "folded", "start": beginning[:FOLDED], "characters": len(whole)}
        return folded | {"texts": [beginning], "thought": []}
    thinking = {i for run in member.get("thoughts", ()) for i in range(*run)}
    shown = [
        (i in thinking, visible(text)) for i, text in zip(range(start, stop), texts, strict=False)
    ]
    return {
        "kind": "tokens",
        "thought": [text for thought, text in shown if thought],
        "texts": [text for thought, text in shown if not thought],
        "cut": end - stop,
    }


def _image(image: dict[str, Any] | None) -> Row:
    if image is None:
        return {"kind": "image", "image": None}
    small = png_bytes(read_rgb(read_data_url(image["src"])), compress_level=9, max_width=THUMB)
    return {
        "kind": "image",
        "image": image,
        "source": data_url(small),
        "label": visible_label(image["label"] or "no action"),
    }


def _divergence(divergence: dict[str, Any]) -> Row:
    return {
        "kind": "divergence",
        "turn": divergence["turn"],
        "words": divergence["kind"].replace("_", " "),
        "emitted": divergence["emitted"],
        "rendered": divergence["rendered"],
    }
