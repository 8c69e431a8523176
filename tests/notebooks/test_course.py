"""The lessons as a course: what holds between them, and what no reader should meet."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from cua_lab.lessons.notebooks import NOTEBOOKS

LESSONS = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
VOCABULARY = NOTEBOOKS / "VOCABULARY.md"
EACH = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def cells(path: Path, kind: str) -> Iterator[nbformat.NotebookNode]:
    return (cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind)


def anchors(page: Path) -> set[str]:
    """As GitHub and JupyterLab make them of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@EACH
def test_no_assert_is_without_a_sentence(path: Path) -> None:
    """A reader who changes a number and meets `AssertionError:` alone has learnt nothing."""
    for cell in cells(path, "code"):
        for node in ast.walk(ast.parse(cell.source, mode="exec")):
            if isinstance(node, ast.Assert):
                assert node.msg is not None, f"{cell.id}: {ast.unparse(node)}"


@EACH
def test_links_lead_to_a_page_and_to_a_heading_that_exist(path: Path) -> None:
    for cell in cells(path, "markdown"):
        for target in LINK.findall(cell.source):
            page, _, anchor = target.partition("#")
            assert (NOTEBOOKS / page).exists(), f"{cell.id} links to {target}"
            if anchor:
                assert anchor in anchors(NOTEBOOKS / page), f"{cell.id} links to {target}"


@EACH
def test_every_stored_picture_says_what_it_shows(path: Path) -> None:
    for cell in cells(path, "code"):
        for output in cell.outputs:
            for kind in ("image/png", "image/jpeg"):
                if kind in output.get("data", {}):
                    words = output.metadata.get(kind, {}).get("alt", "")
                    assert len(words) > 15, f"cell {cell.id}: a picture without alternative text"
            for image in re.findall(
                r"<img[^>]*>", "".join(output.get("data", {}).get("text/html", ""))
            ):
                assert re.search(r'alt="[^"]+"', image), f"cell {cell.id}: {image[:80]}"


@EACH
def test_every_lesson_says_where_to_go_on_along_both_tracks(path: Path) -> None:
    last = list(cells(path, "markdown"))[-1].source.lower()
    assert "learn track" in last
    assert "exactness track" in last
    assert ".ipynb)" in last


def test_the_first_lesson_lists_every_lesson_with_its_track() -> None:
    table = "\n".join(cell.source for cell in cells(LESSONS[0], "markdown"))
    rows = dict(
        re.findall(r"^\| (?:learn|exactness) \| \[(\d\d) .*?\]\((.*?)\)", table, re.MULTILINE)
    )
    assert set(rows.values()) == {path.name for path in LESSONS[1:]}


def test_the_static_edition_has_every_lesson_once_and_in_the_order_of_the_tracks() -> None:
    """Its "next" at a page's end follows this list."""
    listed = re.findall(r"notebooks/(\d\d_\w+)\.md", (NOTEBOOKS.parent / "mkdocs.yml").read_text())
    assert sorted(listed) == [path.stem for path in LESSONS]
    table = "\n".join(cell.source for cell in cells(LESSONS[0], "markdown"))
    rows = re.findall(r"^\| (?:learn|exactness) \| \[(\d\d)", table, re.MULTILINE)
    assert [name[:2] for name in listed] == ["00", *rows]


def test_every_word_of_the_vocabulary_is_explained_once() -> None:
    text = VOCABULARY.read_text(encoding="utf-8")
    words = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert len(words) == len(set(words)) >= 25
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        assert len(part.split("\n", 1)[1].strip()) > 40, part[:40]


@pytest.mark.parametrize(
    "word",
    ["policy", "episode", "turn", "reward", "group", "advantage", "log-probability", "ratio",
     "on-policy", "clip", "entropy", "kl", "sft", "hud", "sglang-vllm", "miles", "rfb-vnc",
     "miniwob"],
)  # fmt: skip
def test_the_vocabulary_has_the_words_of_the_lessons(word: str) -> None:
    assert word in anchors(VOCABULARY)


def test_papers_are_named_by_number_and_no_link_of_a_lesson_leaves_the_repository() -> None:
    """No test fetches anything, so a dead link would never be found."""
    text = VOCABULARY.read_text(encoding="utf-8")
    for number in ("2402.03300", "1707.06347", "2503.20783", "2503.14476", "2507.18071",
                   "2106.09685", "1802.08802"):  # fmt: skip
        assert number in text
    for path in LESSONS:
        for cell in cells(path, "markdown"):
            assert not re.search(r"\]\(https?:", cell.source), f"{path.name}, {cell.id}"
