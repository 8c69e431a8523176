"""The static edition: the lessons as they were executed, docs and API, to read without running.

    notebooks/*.ipynb, docs/, docstrings ──pages()──▶ build/site-pages/*.md ──mkdocs──▶ build/site/

Outputs are the stored ones: text as text, pictures as files with their words, knobs as pages that
work, the mask viewer as its static copy, and the finished run's report and viewer whole. Formulas
become MathML here, so no page needs a script of somebody else. Invariant: nothing is fetched from
outside, at build time or by a reader.

    python tools/site.py            (needs the extra `docs`)
"""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "site-pages"
SITE = ROOT / "build" / "site"
NOTEBOOKS = ROOT / "notebooks"
SEES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
"""Pages of the root; LICENSE, CITATION.cff and sources stay in the repository."""
ROOMS = (
    "checks", "computer", "dataset", "demonstrators", "desktop", "engine", "env_package", "envs",
    "errors", "files", "play", "policy", "recipes", "records", "run", "seeds", "serving", "stats",
    "stitching", "tasks", "training", "viz",
)  # fmt: skip
FENCE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
DISPLAY, INLINE = re.compile(r"\$\$(.+?)\$\$", re.DOTALL), re.compile(r"\$(?!\s)([^$\n]+?)\$")
LINK = re.compile(r"\]\(([^)\s]+)\)")
KNOB = re.compile(r"Knob\('(\w+)'\)")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
CSS = """\
.md-typeset .output pre { border-left: 3px solid var(--md-primary-fg-color); }
.md-typeset img.output { background: #fbfbf9; }
.md-typeset iframe { width: 100%; border: 0; }
.md-typeset math { font-size: 1.05em; }
.md-typeset math[display="block"] { overflow-x: auto; overflow-y: hidden; max-width: 100%; }
.md-typeset table:not([class]) { display: block; overflow-x: auto; }
"""


def main() -> int:
    """Write the pages and build the site; the status of mkdocs."""
    pages()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    return subprocess.run(command, cwd=ROOT).returncode


def pages() -> None:
    """Write everything that mkdocs reads."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    (PAGES / "site.css").write_text(CSS, encoding="utf-8")
    for name in SEES:
        target = PAGES / ("index.md" if name == "README.md" else name)
        target.write_text(
            _linked((ROOT / name).read_text(encoding="utf-8"), ROOT), encoding="utf-8"
        )
    for source in sorted((ROOT / "docs").iterdir()):
        target = PAGES / "docs" / source.name
        target.parent.mkdir(exist_ok=True)
        if source.suffix == ".md":
            text = _linked(source.read_text(encoding="utf-8"), source.parent)
            target.write_text(text, encoding="utf-8")
        elif source.is_file():
            shutil.copy(source, target)
    lessons = PAGES / "notebooks"
    lessons.mkdir()
    vocabulary = (NOTEBOOKS / "VOCABULARY.md").read_text(encoding="utf-8")
    (lessons / "VOCABULARY.md").write_text(_linked(vocabulary, NOTEBOOKS), encoding="utf-8")
    for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")):
        (lessons / f"{path.stem}.md").write_text(lesson(path, lessons), encoding="utf-8")
    _widgets(lessons)
    _api()


def lesson(path: Path, folder: Path) -> str:
    """A notebook as Markdown; its pictures are written beside it."""
    parts: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(prose(source))
            continue
        parts.append(_fenced(source, "python"))
        for number, output in enumerate(cell["outputs"]):
            parts += _output(output, f"{path.stem}-{cell['id']}-{number}", folder)
    return "\n\n".join(parts) + "\n"


def prose(source: str) -> str:
    """Markdown of a cell: links to pages of the site, formulas as MathML, folds with Markdown."""
    text = "".join(
        part if part.startswith("`") else with_formulas(part) for part in FENCE.split(source)
    )
    text = text.replace("<details>", '<details markdown="1">')
    return _linked(text, NOTEBOOKS)


def with_formulas(text: str) -> str:
    """LaTeX between dollars as MathML, which browsers show without a script."""
    from latex2mathml.converter import convert

    text = DISPLAY.sub(lambda m: f"\n\n{convert(m[1].strip(), display='block')}\n\n", text)
    return INLINE.sub(lambda m: convert(m[1]), text)


def _linked(text: str, folder: Path) -> str:
    """Links to notebooks as links to their pages; to what is not on the site, as plain words."""

    def there(match: re.Match[str]) -> str:
        target, mark, anchor = match[1].partition("#")
        if not target or target.startswith(("http:", "https:", "mailto:")):
            return match[0]
        path = (folder / target).resolve()
        if path.name == "README.md":
            return f"]({target.replace('README.md', 'index.md')}{mark}{anchor})"
        if path.suffix == ".ipynb":
            return f"]({target.removesuffix('.ipynb')}.md{mark}{anchor})"
        on_site = path.suffix in (".md", ".svg", ".png") and path.is_relative_to(ROOT)
        return match[0] if on_site else "](index.md)" if folder == ROOT else "](../index.md)"

    return LINK.sub(there, text)


def _output(output: dict[str, Any], name: str, folder: Path) -> Iterator[str]:
    """One stored output; of several forms the richest that a page can hold."""
    if output["output_type"] == "stream":
        yield _text("".join(output["text"]))
        return
    if output["output_type"] == "error":
        yield _text("\n".join(output["traceback"]))
        return
    data = output["data"]
    plain = "".join(data.get("text/plain", ""))
    if (knob := KNOB.fullmatch(plain)) is not None:
        yield f'<iframe src="knobs/{knob[1]}.html" title="Knob: {knob[1]}" height="420"></iframe>'
    elif "text/html" in data:
        copy = f"{name}.html"
        (folder / copy).write_text(_bare("".join(data["text/html"])), encoding="utf-8")
        words = html.escape(plain[:80].splitlines()[0] if plain else "output")
        yield f'<iframe src="{copy}" title="{words}" height="460"></iframe>'
        if plain.startswith("MaskViewer"):
            yield "This is the viewer's static copy; [a viewer that works](finished-viewer.html)."
    elif "image/png" in data:
        (folder / f"{name}.png").write_bytes(base64.b64decode("".join(data["image/png"])))
        alt = output["metadata"].get("image/png", {}).get("alt", "")
        yield f'<img class="output" src="{name}.png" alt="{html.escape(alt, quote=True)}">'
    elif "text/markdown" in data:
        yield prose("".join(data["text/markdown"]))
    elif plain:
        yield _text(plain)


def _bare(body: str) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" '
        f'content="light dark"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>output</title><body>{body}</body></html>"
    )


def _text(text: str) -> str:
    body = ANSI.sub("", text).rstrip("\n")
    return f'<div class="output" markdown="1">\n\n{_fenced(body, "text")}\n\n</div>'


def _fenced(text: str, language: str) -> str:
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}{language}\n{text}\n{ticks}"


def _widgets(lessons: Path) -> None:
    """Knobs that work, and the finished run's viewer and report."""
    from cua_lab.lessons.finished_run import FOLDER
    from cua_lab.lessons.knobs import FIRST, knob
    from cua_lab.viz.report import write_report
    from cua_lab.viz.runfiles import read_run
    from cua_lab.viz.viewer import MaskViewer

    (lessons / "knobs").mkdir()
    for kind in FIRST:
        knob(kind).save_html(lessons / "knobs" / f"{kind}.html")
    run = read_run(FOLDER / "laptop")
    MaskViewer(payload=run.viewer).save_html(lessons / "finished-viewer.html")
    write_report(run.path, lessons / "finished-report.html")


def _api() -> None:
    """One page for each room, from the docstrings; mkdocstrings reads the sources."""
    folder = PAGES / "api"
    folder.mkdir()
    names = []
    for room in ROOMS:
        path = ROOT / "cua_lab" / room
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        modules = [
            ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            for file in files
        ]
        body = "\n\n".join(f"::: {module}" for module in modules)
        (folder / f"{room}.md").write_text(f"# cua_lab.{room}\n\n{body}\n", encoding="utf-8")
        names.append(f"- [cua_lab.{room}]({room}.md)")
    (folder / "index.md").write_text("# API\n\n" + "\n".join(names) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
