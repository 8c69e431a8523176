"""What nobody uses: code of the package that only tests reach, or nothing does.

    package, lessons, what `cua-lab new` writes ──vulture──▶ names without a use
    names without a use ──minus unused_allowed.toml──▶ faults

Invariant: the list of exceptions has a reason for each and holds no name that is used: what is
used again, or gone, leaves the list. Imports are left to ruff, which reads annotations better.

    python tools/unused.py
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import vulture

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = ROOT / "tools" / "unused_allowed.toml"
CONFIDENCE = 60
"""Percent; vulture's own floor, at which a function or an attribute without a use is told."""
SKIPPED = ("import", "unreachable_code")


@dataclass(frozen=True, slots=True)
class Unused:
    """A name that nobody uses."""

    name: str
    kind: str
    """`function`, `method`, `attribute`, ..."""
    path: Path
    line: int


def allowed_names(file: Path) -> dict[str, str]:
    """The exceptions, with their reasons."""
    groups = tomllib.loads(file.read_text(encoding="utf-8"))["allowed"]
    names: dict[str, str] = {}
    for group in groups:
        if not group["reason"].strip():
            raise SystemExit(f"{file.name}: {group['names']} have no reason; give one")
        names |= dict.fromkeys(group["names"], group["reason"])
    return names


def unused_names(package: Path, users: Sequence[Path]) -> list[Unused]:
    """Names of the package that neither it nor its users (files or folders, notebooks too) use."""
    found = vulture.Vulture()
    with tempfile.TemporaryDirectory() as folder:
        notebooks = [_as_module(path, Path(folder)) for user in users for path in _notebooks(user)]
        modules = [path for user in users for path in _modules(user)]
        templates = [_filled(path, Path(folder)) for path in sorted(package.rglob("*.py.jinja"))]
        found.scavenge([str(path) for path in (package, *modules, *notebooks, *templates)])
        items = found.get_unused_code(min_confidence=CONFIDENCE)
    return [
        Unused(str(item.name), item.typ, Path(item.filename), item.first_lineno)
        for item in items
        if item.typ not in SKIPPED and Path(item.filename).resolve().is_relative_to(package)
    ]


def _notebooks(user: Path) -> list[Path]:
    return sorted(user.glob("*.ipynb"))


def _modules(user: Path) -> list[Path]:
    return [user] if user.suffix == ".py" else sorted(user.glob("*.py"))


def _as_module(notebook: Path, folder: Path) -> Path:
    """The code cells of a notebook, without what only IPython understands."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = [
        line for line in "\n".join(code).split("\n") if not line.lstrip().startswith(("%", "!"))
    ]
    module = folder / f"lesson_{notebook.stem}.py"
    module.write_text("\n".join(lines), encoding="utf-8")
    return module


def _filled(template: Path, folder: Path) -> Path:
    """A module that `cua-lab new` writes, each place filled with the place's own name."""
    text = re.sub(r"<<\s*(\w+)\s*>>", r"\1", template.read_text(encoding="utf-8"))
    text = re.sub(r"<<.*?>>", "None", text)
    module = folder / f"{template.parent.name}_{template.name.removesuffix('.jinja')}"
    module.write_text(re.sub(r"<%.*?%>\n?", "", text), encoding="utf-8")
    return module


def faults(unused: Sequence[Unused], allowed: dict[str, str], root: Path = ROOT) -> list[str]:
    """A line for each unused name without a reason, and for each reason without a name."""
    names = {one.name for one in unused}
    return [
        *(
            f"{one.path.resolve().relative_to(root)}:{one.line}: {one.kind} {one.name} is used by"
            f" nobody; use it, remove it, or give a reason in {ALLOWED.name}"
            for one in unused
            if one.name not in allowed
        ),
        *(
            f"{ALLOWED.name}: {name} is used, or gone; take it off the list"
            for name in allowed
            if name not in names
        ),
    ]


def main() -> int:
    """Look at the repository that this file is in."""
    unused = unused_names(ROOT / "cua_lab", [ROOT / "notebooks", ROOT / "tools"])
    lines = faults(unused, allowed_names(ALLOWED))
    print("\n".join(lines) or f"nothing is unused but {len(unused)} names that have a reason")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
