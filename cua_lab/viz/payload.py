"""What the mask viewer shows, as one plain JSON object: the only thing its JavaScript ever sees.

    {"version": 1, "title": str, "vocab": {"<id>": text, ...}, "shown": {"<id>": text, ...},
     "members": [member, ...]}

"vocab" holds raw text (what a search looks through), "shown" the visible form of the ids whose text
would hide something (`cua_lab.viz.visible`).

    member = {
      "name": str, "reward": number | null, "status": str | null,
      "ids":         [int, ...],                       all tokens of the stitched sequence
      "mask":        [[start, end], ...],              runs of trained tokens, absolute positions
      "segments":    [[role, start, end, turn, weights | null], ...],  tile ids exactly
      "values":      {"logprob" | "entropy" | "ratio" | "advantage": [number | null, ...]},
                     one entry for each TRAINED token, in order; null or an absent key: not measured
      "thoughts":    [[start, end], ...],              policy tokens before a turn's tool call
      "divergences": [{"turn", "at", "kind", "why", "emitted": [[id, text]], "rendered": [...]}],
                     "at" is the segment after which the row is drawn
      "images":      {"<segment>": {"src", "width", "height", "point", "keys", "label"}},
      "counts":      {role: n, ..., "total": n, "trained": n, "images": n, "turns": n}
    }

Invariant: the five role counts sum to `total`, and `trained` is both the sum of the mask and the
length of every list in `values`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cua_lab.errors import LabError
from cua_lab.pictures import to_rgb
from cua_lab.stitching.codec import UnownedId
from cua_lab.viz.frames import Frame, png_uri
from cua_lab.viz.visible import visible, visible_label

ROLES = ("prompt", "policy", "scaffold", "image", "resynced")
"""The token that opens a call, in Qwen's templates and in the lab's."""
VALUES = ("logprob", "entropy", "ratio", "advantage")
SIDES = ("emitted", "rendered")
OPENER = "<tool_call>"
"""What a call begins with, in every template that this lab drives."""

Numbers = float | Sequence[float | None] | None
"""One number for all trained tokens, or one for each trained (or each response) token."""


class Codec(Protocol):
    """The part of `cua_lab.stitching.codec.TokenCodec` that the viewer needs."""

    @property
    def control(self) -> Mapping[int, str]:
        """Ids that are structure, with their names."""

    def token_bytes(self, token_id: int, /) -> bytes:
        """The bytes of any other id."""


def viewer_payload(
    stitched: Any,
    codec: Codec,
    *,
    images: Any = None,
    advantages: Any = None,
    ratios: Any = None,
    entropies: Any = None,
    names: Sequence[str] | None = None,
    rewards: Sequence[float | None] | None = None,
    title: str = "Stitched episode",
) -> dict[str, Any]:
    """The viewer's JSON for one `Stitched` or `Sample`, or for a list (the members of a group).

    With a list, every other argument is a list of the same length. A `Sample` brings its own name,
    reward and status.
    """
    many = isinstance(stitched, list | tuple)
    members = list(stitched) if many else [stitched]
    if not members:
        raise LabError("the mask viewer got no sequences; give it at least one Stitched")

    def per_member(values: Any, what: str) -> list[Any]:
        if values is None:
            return [None] * len(members)
        listed = list(values) if many else [values]
        if len(listed) != len(members):
            raise LabError(f"{len(members)} sequences but {len(listed)} {what}: give one for each")
        return listed

    columns = zip(
        members,
        names or [_name(member, i if many else None) for i, member in enumerate(members)],
        rewards or [getattr(member, "reward", None) for member in members],
        per_member(images, "lists of images"),
        per_member(advantages, "advantages"),
        per_member(ratios, "ratios"),
        per_member(entropies, "entropies"),
        strict=True,
    )
    vocab: dict[str, str] = {}
    listed = [_member(codec, vocab, *column) for column in columns]
    return with_shown(
        {"version": 1, "title": visible_label(title), "members": listed, "vocab": vocab}
    )


def with_shown(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload with the visible form of its vocabulary, which older ones do not have."""
    if "shown" in payload:
        return payload
    sides = [d[side] for m in payload["members"] for d in m["divergences"] for side in SIDES]
    texts = payload["vocab"] | {str(token): text for side in sides for token, text in side}
    shown = {token: visible(text) for token, text in texts.items()}
    return payload | {"shown": {t: text for t, text in shown.items() if text != texts[t]}}


def token_text(codec: Codec, token_id: int) -> str:
    r"""An id's text; bytes that are not a whole character show as `\xe2`, never as U+FFFD."""
    if token_id in codec.control:
        return codec.control[token_id]
    try:
        return codec.token_bytes(token_id).decode("utf-8", errors="backslashreplace")
    except UnownedId:  # checkpoints pad their vocabulary, and a server may sample such a row
        return f"<id {token_id}>"


def _name(member: Any, index: int | None) -> str:
    return getattr(member, "episode", None) or ("episode" if index is None else f"member {index}")


def _member(
    codec: Codec,
    vocab: dict[str, str],
    member: Any,
    name: str,
    reward: float | None,
    frames: Sequence[Frame] | None,
    advantages: Numbers,
    ratios: Numbers,
    entropies: Numbers,
) -> dict[str, Any]:
    stitched = getattr(member, "stitched", member)
    ids = [int(token) for token in stitched.tokens]
    for token in set(ids):
        vocab.setdefault(str(token), token_text(codec, token))
    segments = [
        [s.role, s.start, s.end, s.turn, getattr(s, "weight_version", None)]
        for s in stitched.segments
    ]
    start = stitched.response_start
    trained = [start + i for i, kept in enumerate(stitched.loss_mask) if kept]
    columns = {
        "logprob": stitched.logprobs,
        "entropy": entropies,
        "ratio": ratios,
        "advantage": advantages,
    }
    values = {
        key: _at_trained(column, stitched.loss_mask, key)
        for key, column in columns.items()
        if column is not None
    }
    return {
        "name": visible_label(name),
        "reward": None if reward is None else _json_number(reward),
        "status": _label_or_none(getattr(member, "status", None)),
        "ids": ids,
        "mask": _runs(trained),
        "segments": segments,
        "values": values,
        "thoughts": _thoughts(ids, segments, vocab),
        "divergences": [_divergence(d, codec, segments) for d in stitched.divergences],
        "images": _images(segments, frames),
        "counts": _counts(segments, len(ids), len(trained)),
    }


def _label_or_none(text: Any) -> str | None:
    return None if text is None else visible_label(str(text))


def _thoughts(
    ids: Sequence[int], segments: Sequence[Sequence[Any]], vocab: Mapping[str, str]
) -> list[list[int]]:
    """Runs of policy tokens that a turn says before its tool call; a blank is no thought, and a
    turn without a call has none."""
    answers: dict[int, list[tuple[int, int]]] = {}
    for role, start, end, turn, *_ in segments:
        if role == "policy":
            answers.setdefault(turn, []).append((start, end))
    return [run for pieces in answers.values() for run in _runs(_before_call(pieces, ids, vocab))]


def _before_call(
    pieces: Sequence[tuple[int, int]], ids: Sequence[int], vocab: Mapping[str, str]
) -> list[int]:
    """Positions of an answer's tokens that end before its call opens."""
    said, ends = "", []
    for position in (i for start, end in pieces for i in range(start, end)):
        said += vocab[str(ids[position])]
        ends.append((position, len(said)))
        at = said.find(OPENER, max(0, len(said) - len(vocab[str(ids[position])]) - len(OPENER)))
        if at >= 0:
            return [i for i, end in ends if end <= at] if said[:at].strip() else []
    return []


def _at_trained(column: Numbers, mask: Sequence[int], what: str) -> list[float | None]:
    """A column reduced to the trained tokens, in order."""
    trained = sum(1 for kept in mask if kept)
    if isinstance(column, int | float):
        return [_json_number(column)] * trained
    listed = [] if column is None else list(column)
    if len(listed) == len(mask):
        listed = [value for value, kept in zip(listed, mask, strict=True) if kept]
    elif len(listed) != trained:
        raise LabError(
            f"the {what} column has {len(listed)} entries, but the response has {len(mask)} tokens"
            f" of which {trained} are trained; give one number, {trained} or {len(mask)} of them"
        )
    return [_json_number(value) for value in listed]


def _json_number(value: Any) -> float | None:
    """Six digits; `None` where nothing was measured (None, NaN). Missing is not zero."""
    if value is None or not math.isfinite(float(value)):
        return None
    return float(f"{float(value):.6g}")


def _runs(positions: Sequence[int]) -> list[list[int]]:
    """Sorted positions as half-open runs: `[3, 4, 7]` gives `[[3, 5], [7, 8]]`."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and runs[-1][1] == position:
            runs[-1][1] = position + 1
        else:
            runs.append([position, position + 1])
    return runs


def _divergence(divergence: Any, codec: Codec, segments: list[list[Any]]) -> dict[str, Any]:
    """One divergence row, anchored behind what comes before the re-rendered ids; a rewrite ends
    the sequence, so its row comes last."""
    before = [i for i, segment in enumerate(segments) if segment[1] < max(1, divergence.index)]
    rewrite = divergence.kind == "rewrite"
    return {
        "turn": divergence.turn,
        "at": len(segments) - 1 if rewrite else before[-1],
        "kind": divergence.kind,
        "why": visible_label(divergence.explain()),
        "emitted": [[int(i), token_text(codec, i)] for i in divergence.emitted_ids],
        "rendered": [[int(i), token_text(codec, i)] for i in divergence.rendered_ids],
    }


def _images(segments: list[list[Any]], frames: Sequence[Frame] | None) -> dict[str, Any]:
    """Frames by segment index; each image segment takes the next frame."""
    if frames is None:
        return {}
    where = [i for i, segment in enumerate(segments) if segment[0] == "image"]
    if len(where) != len(frames):
        raise LabError(
            f"the sequence has {len(where)} image segments but {len(frames)} images were given;"
            " give one Frame (or PIL image) for each, in order"
        )
    return {str(i): _image(f) for i, f in zip(where, frames, strict=True)}


def _image(frame: Any) -> Mapping[str, Any]:
    frame = frame if isinstance(frame, Frame) else Frame(frame)
    image = to_rgb(frame.image)
    return {
        "src": png_uri(image),
        "width": image.width,
        "height": image.height,
        "point": None if frame.point is None else [round(v, 5) for v in frame.point],
        "keys": [visible_label(key) for key in frame.keys],
        "label": visible_label(frame.label),
    }


def _counts(segments: list[list[Any]], total: int, trained: int) -> dict[str, int]:
    by_role = dict.fromkeys(ROLES, 0)
    for role, start, end, *_ in segments:
        by_role[role] += end - start
    if sum(by_role.values()) != total:
        raise LabError(
            f"the segments hold {sum(by_role.values())} tokens but the sequence has {total};"
            " segments must tile the tokens exactly"
        )
    return {
        **by_role,
        "total": total,
        "trained": trained,
        "images": sum(segment[0] == "image" for segment in segments),
        "turns": len({segment[3] for segment in segments}),
    }
