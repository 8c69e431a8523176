"""The quality filter: a JSONL file in; accepted rows, rejected rows with all reasons, a report out.

Accepted rows are written byte for byte as they came, in their order. A rejected row becomes
`{"line": 17, "reasons": [{"reason": ..., "detail": ...}, ...], "row": {...}}`, or `"text"` instead
of `"row"` where the line is not JSON.

Invariant: no row, however broken, stops the run, and memory does not grow with the file.
"""

from __future__ import annotations

import codecs
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cua_lab.dataset.data_checks import Checked, Reason, Rules, check_row, screenshot_of
from cua_lab.dataset.image_facts import ImageFacts, reader
from cua_lab.dataset.instructions import normalise
from cua_lab.dataset.jsonl import bounded_lines, dumps
from cua_lab.dataset.seen import Seen
from cua_lab.dataset.spaces import SpaceEvidence
from cua_lab.errors import LabError
from cua_lab.files import writing


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row judged."""

    line: int
    """Counted from 1, blank lines included, as editors count."""
    row: Any
    """The parsed row; `None` where it is not JSON."""
    reasons: tuple[Reason, ...]

    @property
    def accepted(self) -> bool:
        """No reason against it."""
        return not self.reasons


@dataclass(frozen=True)
class QualityReport:
    """What the filter found in a file."""

    source: str
    rows: int
    accepted: int
    reasons: dict[str, int]
    """Rows by reason, most frequent first; a row with three reasons counts three times."""
    space_mismatch: str | None
    """A sentence where the whole file looks like another coordinate space."""
    not_checked: tuple[str, ...]
    """Reasons that this run could not find, since pixels were not read."""
    seconds: float
    rules: Rules
    files: dict[str, str] = field(default_factory=dict)

    @property
    def rejected(self) -> int:
        """Rows with at least one reason."""
        return self.rows - self.accepted

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record, `rejected` and the rate included."""
        rate = self.rows / self.seconds if self.seconds else None
        return asdict(self) | {"rejected": self.rejected, "rows_per_s": rate}


class QualityFilter:
    """Judges rows one by one and remembers what it needs for duplicates and the report."""

    def __init__(
        self, rules: Rules | None = None, *, root: str | Path = ".", decode: bool = True
    ) -> None:
        self.rules = rules or Rules()
        self.root = str(root)
        self.decode = decode
        self.evidence = SpaceEvidence()
        self.counts: Counter[str] = Counter()
        self.rows = 0
        self._facts: Callable[[str], ImageFacts] = reader(decode=decode)
        self._seen = Seen()

    def __enter__(self) -> QualityFilter:
        self._seen.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._seen.__exit__(*error)

    def judge_line(self, raw: bytes, line: int, *, whole: bool = True) -> Verdict:
        """Judge one line of a file."""
        if not whole:
            return self._verdict(line, None, [Reason("row_too_long", "more than 16 MiB")])
        try:
            row = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            detail = f"{type(error).__name__}: {error}"[:200]
            return self._verdict(line, None, [Reason("not_json", detail)])
        return self.judge(row, line)

    def judge(self, row: Any, line: int) -> Verdict:
        """Judge one parsed row."""
        path = self._path(row)
        facts = None if path is None else self._facts(path)
        checked = check_row(row, facts, self.rules)
        reasons = list(checked.reasons)
        if checked.point is not None and checked.space is not None:
            self.evidence.add(checked.space, checked.point, checked.size)
        if facts is not None and path is not None and checked.instruction is not None:
            reasons += self._duplicates(path, facts, checked, line, remember=not reasons)
        return self._verdict(line, row, reasons)

    def _path(self, row: Any) -> str | None:
        path = screenshot_of(row)
        return None if path is None else os.path.normpath(os.path.join(self.root, path))

    def _duplicates(
        self, path: str, facts: ImageFacts, checked: Checked, line: int, *, remember: bool
    ) -> list[Reason]:
        image = facts.pixel_hash or path
        text, point = normalise(checked.instruction or ""), checked.point_unit
        if (first := self._seen.exact(image, text)) is not None:
            return [Reason("duplicate", f"of line {first}")]
        if facts.dhash is not None:
            first = self._seen.near(facts.dhash, text, point)
            if first is not None:
                return [Reason("near_duplicate", f"of line {first}")]
        if remember:
            self._seen.remember(image, facts.dhash, text, point, line)
        return []

    def _verdict(self, line: int, row: Any, reasons: list[Reason]) -> Verdict:
        self.rows += 1
        self.counts.update({reason.reason for reason in reasons})
        self.counts["accepted"] += not reasons
        return Verdict(line, row, tuple(reasons))

    def report(self, source: str, seconds: float, files: dict[str, str]) -> QualityReport:
        """The report over all rows judged so far."""
        by_reason = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        unread = () if self.decode else ("screenshot_blank", "near_duplicate")
        return QualityReport(
            source=source,
            rows=self.rows,
            accepted=self.counts["accepted"],
            reasons={name: count for name, count in by_reason if name != "accepted" and count},
            space_mismatch=self.evidence.mismatch(),
            not_checked=unread,
            seconds=seconds,
            rules=self.rules,
            files=files,
        )


def judge_rows(
    rows: Iterable[Any],
    rules: Rules | None = None,
    *,
    root: str | Path = ".",
    decode: bool = True,
) -> Iterator[Verdict]:
    """Verdicts for rows that are already in memory: the notebook's way."""
    with QualityFilter(rules, root=root, decode=decode) as quality:
        for line, row in enumerate(rows, 1):
            yield quality.judge(row, line)


def check_file(
    path: str | Path,
    rules: Rules | None = None,
    *,
    out: str | Path | None = None,
    root: str | Path | None = None,
    decode: bool = True,
    progress: bool = False,
) -> QualityReport:
    """Check a JSONL file and write `accepted.jsonl`, `rejected.jsonl`, `report.json`, `report.png`.

    `out` is a folder, by default `<name>.checked` beside the file; screenshots are looked up from
    `root`, by default the file's folder. The files appear together at the end or not at all.
    """
    source = Path(path)
    _refuse_unreadable(source)
    folder = Path(out) if out is not None else source.with_name(source.stem + ".checked")
    names = ("accepted.jsonl", "rejected.jsonl", "report.json")
    files = {Path(name).stem: str(folder / name) for name in names}
    began = time.perf_counter()
    with ExitStack() as stack:
        quality = stack.enter_context(
            QualityFilter(rules, root=root if root is not None else source.parent, decode=decode)
        )
        good = stack.enter_context(writing(files["accepted"]))
        bad = stack.enter_context(writing(files["rejected"]))
        for raw, verdict in _verdicts(source, quality, progress=progress):
            if verdict.accepted:
                good.write(raw + b"\n")
            else:
                bad.write(_rejected(raw, verdict))
        report = quality.report(str(source), time.perf_counter() - began, files)
    _write_report(report)
    return report


def _refuse_unreadable(source: Path) -> None:
    if not source.is_file():
        raise LabError(f"{source} is not a file; expected a JSONL file, one sample a line")
    with open(source, "rb") as stream:
        start = stream.read(4096)
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise LabError(f"{source} is UTF-16, as PowerShell's > writes it; save it as UTF-8")
        if start.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"[":
            raise LabError(
                f"{source} is one JSON array, not one object a line;"
                " turn a public format into rows with `cua-lab data convert`"
            )


def _verdicts(
    source: Path, quality: QualityFilter, *, progress: bool
) -> Iterator[tuple[bytes, Verdict]]:
    from tqdm import tqdm

    bar = tqdm(
        total=source.stat().st_size, unit="B", unit_scale=True, desc="check", disable=not progress
    )
    pending = 0
    with bar, open(source, "rb") as stream:
        for line, (raw, consumed, whole) in enumerate(bounded_lines(stream), 1):
            if raw.strip():
                yield raw, quality.judge_line(raw, line, whole=whole)
            pending += consumed
            if pending > 2**16:
                bar.update(pending)
                bar.set_postfix(rows=quality.rows, accepted=quality.counts["accepted"])
                pending = 0
        bar.update(pending)


def _rejected(raw: bytes, verdict: Verdict) -> bytes:
    """The side file's line. The row is embedded as it came, so nothing is re-formatted."""
    reasons = [asdict(reason) for reason in verdict.reasons]
    head = dumps({"line": verdict.line, "reasons": reasons})[:-1].encode()
    strict = verdict.row is not None and b"NaN" not in raw and b"Infinity" not in raw
    if strict:
        return head + b', "row": ' + raw.strip() + b"}\n"
    return head + b', "text": ' + dumps(raw.decode("utf-8", "backslashreplace")).encode() + b"}\n"


def _write_report(report: QualityReport) -> None:
    with writing(report.files["report"]) as out:
        out.write(json.dumps(report.to_json(), indent=1).encode() + b"\n")
