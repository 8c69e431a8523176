"""`cua-lab new`: an env package of one's own, written from templates, that plays at once.

    name [+ page] ──new_package()──▶ folder: app or page, env, tasks, players, recipe, test

Invariant: the folder is whole or not there; nothing that exists is overwritten.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from cua_lab.errors import LabError
from cua_lab.files import read_text, writing_folder

TEMPLATES = Path(__file__).parent
LESSON = "lesson 12_your_own"
HOOKS = '<script src="lab.js"></script>\n'
IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class Button:
    """What the starter's task is to click."""

    id: str
    """In the page; the starter gives it one where it has none."""
    text: str


def new_package(folder: Path, page: Path | None = None) -> list[str]:
    """Write the package and say which files; raises `LabError` where it cannot be."""
    name = _checked(folder)
    values = {"name": name, "package": folder.as_posix(), "lesson": LESSON}
    if page is None:
        return _write(folder, _rendered("app", values))
    source = read_text(page)
    button = first_button(source)
    if button is None:
        raise LabError(
            f"{page} has no button or link with an id: the starter's task is to click one. Give"
            f' one an id, <button id="send">Send</button>; see {LESSON}'
        )
    files = _rendered("page", values | {"id": button.id, "text": button.text})
    if "lab.state" not in source:
        source = _with_hooks(source)
    else:
        del files["lab.js"]  # the page has hooks of its own
    return _write(folder, files | {"index.html": source})


def first_button(source: str) -> Button | None:
    """The first button, link or input of a page that has an id."""
    finder = _Finder()
    finder.feed(source)
    finder.close()
    return finder.found


@dataclass
class _Finder(HTMLParser):
    """Looks for a thing to click and its words."""

    found: Button | None = None
    _open: str | None = None
    _words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        id = known.get("id")
        if self.found or self._open or not id:
            return
        if tag == "input" and known.get("type") in ("button", "submit", "checkbox", "radio"):
            self.found = Button(id, known.get("value") or id)
        elif tag in ("button", "a"):
            self._open = id

    def handle_data(self, data: str) -> None:
        if self._open:
            self._words.append(data)

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag in ("button", "a"):
            text = " ".join("".join(self._words).split())
            self.found, self._open = Button(self._open, text or self._open), None


def _checked(folder: Path) -> str:
    name = folder.name
    if not IDENTIFIER.fullmatch(name):
        near = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "my_env"
        near = near if near[0].isalpha() else f"my_{near}"
        raise LabError(
            f"{name!r} cannot be a package's name: lower-case letters, digits and _, a letter"
            f" first, at most 40; for example {near[:40]}"
        )
    if folder.exists():
        raise LabError(f"{folder} exists already; choose another name, or move it away")
    if importlib.util.find_spec(name) is not None:
        raise LabError(f"there is a Python package called {name!r} already; choose another name")
    return name


def _rendered(kind: str, values: dict[str, str]) -> dict[str, str]:
    """The files of a kind; test and recipe are called after the package: several can be told apart,
    and a run is called as its recipe."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    source = Environment(  # Python, YAML and JS, not HTML: `tojson` quotes what a page says
        loader=FileSystemLoader([TEMPLATES / kind, TEMPLATES / "both"]),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        variable_start_string="<<",
        variable_end_string=">>",
        autoescape=False,
    )
    values = values | {"title": "".join(part.title() for part in values["name"].split("_"))}
    named = {"test.py": f"test_{values['name']}.py", "recipe.yaml": f"{values['name']}.yaml"}
    files = {}
    for template in source.list_templates(extensions=["jinja"]):
        file = template.removesuffix(".jinja")
        files[named.get(file, file)] = source.get_template(template).render(values)
    return files


def _with_hooks(source: str) -> str:
    """The page with `lab.js` as the last script of its body, or of the file."""
    at = source.lower().rfind("</body>")
    at = source.lower().rfind("</html>") if at < 0 else at
    return f"{source}\n{HOOKS}" if at < 0 else source[:at] + HOOKS + source[at:]


def _write(folder: Path, files: dict[str, str]) -> list[str]:
    with writing_folder(folder) as partial:
        for name, text in files.items():
            (partial / name).write_text(text, encoding="utf-8")
    return sorted(files)
