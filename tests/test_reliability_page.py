"""docs/reliability.md is what the suite counted."""

import re
from pathlib import Path

from tools.reliability import PAGE, ROOT, SECTIONS, page, read_counts, told

ROWS = {row.key: row for section in SECTIONS for row in section.rows}
COUNTED = re.compile(r'counted\(\s*f?"([\w-]+)(\{?)')


def test_the_page_is_of_todays_counts() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read_counts()), (
        "docs/reliability.md is old: python tools/reliability.py --write"
    )


def test_each_row_is_counted_by_its_test_and_nothing_is_counted_for_no_row() -> None:
    keys: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path == Path(__file__):
            continue
        for key, open_ended in COUNTED.findall(path.read_text(encoding="utf-8")):
            whole = [row for row in ROWS if row.startswith(key)] if open_ended else [key]
            for name in whole:
                keys.setdefault(name, set()).add(path.relative_to(ROOT / "tests").as_posix())
    assert set(keys) == set(ROWS)
    for key, row in ROWS.items():
        assert row.tests in keys[key], key


def test_what_was_not_run_says_so() -> None:
    assert told(None) == "not run yet"
    assert told({"kills": 1234, "slope_mib": 0.5}) == "1,234 kills, 0.5 MiB per 100 episodes"
    assert set(read_counts()) <= set(ROWS)
