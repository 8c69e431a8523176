"""Every `cua-lab` line in a lesson or on a page is one that the command line takes.

A line of lesson 01 named options that do not exist; nobody noticed, for nothing ran it.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import typer

from cua_lab.cli import commands  # noqa: F401  (registers the commands)
from cua_lab.cli.root import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.md"),
     *ROOT.glob("notebooks/[0-9][0-9]_*.ipynb")]
)  # fmt: skip
FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
INLINE = re.compile(r"`(cua-lab [^`]+)`")
ANY_VALUE = re.compile(r"--[a-z-]+ \.\.\.")
BEGUN = "cua-lab"


def prose(page: Path) -> str:
    if page.suffix == ".md":
        return page.read_text(encoding="utf-8")
    cells = nbformat.read(page, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def lines_of(page: Path) -> Iterator[str]:
    """Command lines in code blocks, continuation lines joined, and whole ones in the text."""
    text = prose(page)
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip().removeprefix("$ ").startswith(f"{BEGUN} "):
                yield line.strip().removeprefix("$ ")
    for inline in INLINE.findall(FENCE.sub("", text)):
        yield " ".join(inline.split())


def variants(line: str) -> Iterator[list[str]]:
    """The arguments of a line; `a | b` in a list of commands is one line for each."""
    line = ANY_VALUE.sub("", line).replace("PORT", "8000").replace("...", "")
    words = shlex.split(line, comments=True)[1:]
    if "|" not in words:
        yield words
        return
    first = words.index("|") - 1
    for word in words[first:]:
        if word != "|":
            yield [*words[:first], word]


def fault(words: list[str]) -> str | None:
    """What typer's own parser has against it, without running it; a command named alone is a
    mention, not a line to type. Typer brings its own copy of click, whose errors all have
    `format_message`."""
    command: Any = typer.main.get_command(app)
    while (inner := getattr(command, "commands", None)) is not None and words:
        if words[0].startswith("-"):
            break
        if words[0] not in inner:
            return f"no command {words[0]!r}; there are {', '.join(inner)}"
        command, words = inner[words[0]], words[1:]
    try:
        if words and words != ["--help"]:
            command.make_context(command.name, list(words), resilient_parsing=False)
    except Exception as error:
        return str(error.format_message() if hasattr(error, "format_message") else repr(error))
    return None


CASES = [(page.name, line) for page in PAGES for line in dict.fromkeys(lines_of(page))]


@pytest.mark.parametrize(("page", "line"), CASES, ids=[f"{p}: {x[:50]}" for p, x in CASES])
def test_the_command_line_takes_it(page: str, line: str) -> None:
    for words in variants(line):
        said = fault(words) or ""
        mention = said.startswith("Missing")  # "with `cua-lab serve --engine vllm` the engine ..."
        assert not said or mention, f"{page}: {line}: {said}"


def test_a_line_with_an_option_that_does_not_exist_is_found() -> None:
    """Lesson 01 said this."""
    line = "data mint cua_lab.envs.lab --slugs 2048-score --out rows.jsonl"
    assert "--slugs" in str(fault(shlex.split(line)))
    assert "no command 'no-such'" in str(fault(["no-such"]))
    assert fault(shlex.split("run --recipe laptop --seed 1")) is None


def test_there_are_lines_to_check() -> None:
    assert len(CASES) > 25
    assert any(page.endswith(".ipynb") for page, _ in CASES)
