"""The static edition: it is built whole, fetches nothing, fits a phone, and no link is dead.

Skipped where the extra `docs` is not installed; CI has a job that has it.
"""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Links(HTMLParser):
    """What a page points at, and what can be pointed at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.pictures: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.anchors |= {known[name] or "" for name in ("id", "name") if name in known}
        self.targets += [known[n] or "" for n in ("href", "src") if n in known and tag != "base"]
        if tag == "img":
            self.pictures.append(known)


@pytest.fixture(scope="module")
def site() -> Path:
    pytest.importorskip("mkdocs", reason="the extra is not installed: pip install -e '.[docs]'")
    pytest.importorskip("latex2mathml", reason="pip install -e '.[docs]'")
    built = subprocess.run(
        [sys.executable, "tools/site.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return SITE


@pytest.fixture(scope="module")
def read(site: Path) -> dict[Path, Links]:
    return {p: Links(p.read_text(encoding="utf-8")) for p in site.rglob("*.html")}


def test_every_lesson_page_and_room_is_there(site: Path) -> None:
    for name in LESSONS:
        assert (site / "notebooks" / f"{name}.html").exists()
    assert (site / "api" / "training.html").read_text().count("policy_loss") > 0
    assert "advantage" in (site / "search" / "search_index.json").read_text()


def test_no_link_is_dead(site: Path, read: dict[Path, Links]) -> None:
    dead = []
    for path, links in read.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme in ("http", "https", "mailto", "data", "javascript") or parts.netloc:
                continue
            there = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            there = there / "index.html" if there.is_dir() else there
            if path.name == "404.html":
                continue  # its links are those of a site's root
            if not there.exists():
                dead.append(f"{path.relative_to(site)} -> {target}")
            elif parts.fragment and there.suffix == ".html" and there in read:
                known = read[there].anchors
                if unquote(parts.fragment) not in known and "__" not in parts.fragment:
                    dead.append(f"{path.relative_to(site)} -> {target}: no such place")
    assert dead == []


def test_nothing_is_loaded_from_outside(read: dict[Path, Links], site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]+src=\"?(https?:[^\"\s>]+)", text)
        loaded += re.findall(r"<link[^>]+rel=\"?stylesheet\"?[^>]+href=\"?(https?:[^\"\s>]+)", text)
        assert loaded == [], path.name


def test_every_picture_has_words(read: dict[Path, Links]) -> None:
    for path, links in read.items():
        for picture in links.pictures:
            assert picture.get("alt"), f"{path.name}: {str(picture)[:120]}"


@pytest.mark.parametrize("width", [1280, 390])
def test_each_lesson_is_read_in_chromium(page, site: Path, width: int, artefacts: Path) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": width, "height": 900})
    for name in LESSONS:
        page.goto((site / "notebooks" / f"{name}.html").as_uri())
        page.wait_for_selector("h1")
        assert page.evaluate(OVERFLOW) <= 0, f"{name} is wider than {width} px"
    page.goto((site / "notebooks" / "06_grpo.html").as_uri())
    assert page.locator("math").count() > 5
    page.screenshot(path=artefacts / f"site-{width}.png")
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_a_knob_works_in_its_page(page, site: Path) -> None:
    page.goto((site / "notebooks" / "06_grpo.html").as_uri())
    frame = page.frame_locator('iframe[title="Knob: clip"]')
    frame.get_by_role("slider", name="ratio", exact=True).focus()
    page.keyboard.press("Home")
    assert "likelier" in frame.locator(".said").inner_text()
