"""Text on every colour of the viewer and of the report has a contrast of at least 10:1."""

import re
from itertools import product

import pytest

from cua_lab.viz.fallback import STYLES
from cua_lab.viz.page import asset

ENOUGH = 10.0
NOT_BEHIND_TEXT = {"--cl-ink", "--cl-line", "--cl-accent", "--cl-mark", "--cl-mono", "--cl-sans"}
THEMES = ("light", "dark")


def properties(css: str, theme: str) -> dict[str, str]:
    """Custom properties with a light and a dark value."""
    pattern = r"(--[\w-]+):[^;]*?light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)"
    return {name: (a, b)[THEMES.index(theme)] for name, a, b in re.findall(pattern, css)}


def luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_formula_gives_21_for_black_on_white():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("theme", THEMES)
def test_tokens_read_on_every_colour_they_can_have(theme):
    colours = properties(asset("viewer.css"), theme)
    behind = {name: c for name, c in colours.items() if name not in NOT_BEHIND_TEXT}
    assert len(behind) >= 20
    low = {n: round(contrast(colours["--cl-ink"], c), 1) for n, c in behind.items()}
    assert {n: c for n, c in low.items() if c < ENOUGH} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_patterns_and_frames_can_be_seen_on_every_colour(theme):
    """Marks carry what colour alone must not: 3:1, as WCAG asks of graphics."""
    colours = properties(asset("viewer.css"), theme)
    fills = [n for n in colours if re.match(r"--cl-(seq|div)|--cl-(policy|scaffold|image)$", n)]
    pairs = product(("--cl-mark", "--cl-accent"), fills)
    assert min(contrast(colours[a], colours[b]) for a, b in pairs) >= 3


@pytest.mark.parametrize("theme", THEMES)
def test_the_report_reads(theme):
    colours = properties(asset("report.css"), theme)
    for name in ("--page", "--panel"):
        assert contrast(colours["--ink"], colours[name]) >= ENOUGH
    for name in ("--look0", "--look1", "--look2", "--axis"):
        assert contrast(colours["--page"], colours[name]) >= 3


@pytest.mark.parametrize("role", STYLES)
def test_the_static_copy_brings_its_ink_with_its_paper(role):
    """Inline styles meet any theme: a pastel without its own ink would vanish in a dark one."""
    paper = re.search(r"background:(#[0-9a-f]{6})", STYLES[role])[1]
    assert "color:#000" in STYLES[role]
    assert contrast("#000000", paper) >= ENOUGH


def test_every_role_differs_by_more_than_its_colour():
    without_colour = {re.sub(r"background:#\w+;?", "", style) for style in STYLES.values()}
    assert len(without_colour) == len(STYLES)
    css = asset("viewer.css")
    for role in ("policy", "scaffold", "image", "resynced"):
        rule = re.search(rf"\.cl-{role} {{(.*?)}}", css, re.S)[1]
        assert re.search(r"box-shadow|background-image|outline", rule)
