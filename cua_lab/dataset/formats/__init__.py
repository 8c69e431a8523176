"""Public formats: rows of published datasets as our samples or as HUD task rows.

Every reader maps one public row to a list of our rows and is pure; its module says which field goes
where, the coordinate space and the licence. A row that does not fit is set aside with its reason.

Invariant: no field of a public row is lost: what has no place in ours is kept in `extra`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cua_lab.dataset.formats import agentnet, aguvis, osworld, screenspot, webarena
from cua_lab.dataset.formats.fields import Row
from cua_lab.dataset.jsonl import dumps, show
from cua_lab.errors import LabError
from cua_lab.files import read_text, writing

Reader = Callable[[Mapping[str, Any], str], list[Row]]
"""(public row, folder prefix of its images) -> our rows."""


def readers() -> dict[str, Reader]:
    """All readers by name."""
    return {
        "screenspot": screenspot.read_original,
        "screenspot-v2": screenspot.read_original,
        "screenspot-hf": screenspot.read_hub,
        "agentnet": agentnet.read_task,
        "aguvis": aguvis.read_conversation,
        "osworld": osworld.read_task,
        "webarena": webarena.read_config,
    }


def licences() -> dict[str, str]:
    """Under which licence the rows of each public format were published."""
    return {
        **dict.fromkeys(("screenspot", "screenspot-v2", "screenspot-hf"), screenspot.LICENCE),
        "agentnet": agentnet.LICENCE,
        "aguvis": aguvis.LICENCE,
        "osworld": osworld.LICENCE,
        "webarena": webarena.LICENCE,
    }


def public_rows(path: str | Path) -> Iterator[Any]:
    """Rows of a JSON array, of one JSON object, or of JSONL; a line that is no JSON is a `LabError`
    in its place."""
    text = read_text(path)
    if text.lstrip()[:1] == "[":
        try:
            yield from json.loads(text)
        except (ValueError, RecursionError) as error:
            raise LabError(f"{path} is no JSON array: {error}") from error
        return
    try:
        yield json.loads(text)
    except (ValueError, RecursionError):
        for line in filter(str.strip, text.split("\n")):
            yield _line(line)


def _line(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return LabError(f"not JSON: {error}: {show(text)}")


def read_public(
    format: str, path: str | Path, *, images: str | Path | None = None
) -> Iterator[tuple[int, Any, list[Row] | LabError]]:
    """(number, public row, our rows or why there are none) for each row of a public file."""
    known = readers()
    if format not in known:
        raise LabError(f"format is {format!r}; known: {', '.join(known)}")
    if not Path(path).is_file():
        raise LabError(f"{path} is not a file")
    prefix = "" if images is None else str(images)
    for number, row in enumerate(public_rows(path), 1):
        if isinstance(row, LabError):
            yield number, None, row
            continue
        try:
            if not isinstance(row, Mapping):
                raise LabError(f"a {type(row).__name__}; expected an object")
            yield number, row, known[format](row, prefix)
        except LabError as error:
            yield number, row, error


@dataclass(frozen=True, slots=True)
class Converted:
    """What became of a public file."""

    rows: int
    """Rows of ours that were written."""
    skipped: int
    """Public rows that could not be read; they are in `skipped_file` with the reason."""
    skipped_file: str


def convert_file(
    format: str, path: str | Path, out: str | Path, *, images: str | Path | None = None
) -> Converted:
    """Write a public file as our JSONL, and beside it what could not be read, with reasons."""
    skipped_file = Path(out).with_suffix(".skipped.jsonl")
    count = skipped = 0
    with writing(out) as good, writing(skipped_file) as bad:
        for number, public, ours in read_public(format, path, images=images):
            if isinstance(ours, LabError):
                record = {"number": number, "reason": str(ours), "row": public}
                bad.write(dumps(record).encode() + b"\n")
                skipped += 1
                continue
            for row in ours:
                good.write(dumps(row).encode() + b"\n")
                count += 1
    return Converted(count, skipped, str(skipped_file))
