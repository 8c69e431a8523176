"""The floors of the package, and whether its imports keep to them.

    pyproject.toml ──▶ Floors (from the top)        source files ──▶ Imports (file, line, target)
                  └──────────────▶ arrows up, circles of files, rooms without a floor ◀──┘

A room is a folder or a module directly under the package. Invariant: a room imports from its own
floor and from those below. Every import counts: inside functions, for type checkers alone, and
`importlib.import_module` of a fixed name.

    python tools/floors.py          # what is wrong, one line each; fails where anything is
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
Floors = Sequence[Sequence[str]]
"""Names of rooms, from the top floor to the ground."""


@dataclass(frozen=True, slots=True)
class Import:
    """One import of one of the package's own modules."""

    source: str
    """Dotted name of the importing module."""
    target: str
    """Dotted name of the imported one."""
    path: Path
    line: int

    def where(self, root: Path) -> str:
        """`cua_lab/viz/report.py:14`."""
        return f"{self.path.relative_to(root).as_posix()}:{self.line}"


def read_floors(pyproject: Path) -> list[list[str]]:
    """The list `floors` of `[tool.cua_lab]`."""
    settings = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    floors: list[list[str]] = settings["tool"]["cua_lab"]["floors"]
    return floors


def modules_of(package: Path) -> dict[str, Path]:
    """Every module of a package by its dotted name; a folder's name is its `__init__`."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(package: Path) -> list[Import]:
    """Every import of the package's own modules by its own modules."""
    modules = modules_of(package)
    found = [
        Import(source, target, path, line)
        for source, path in modules.items()
        for name, line in _named(ast.parse(path.read_text(encoding="utf-8")), source, path)
        if (target := _module(name, modules)) is not None and target != source
    ]
    return list(dict.fromkeys(found))  # three names from one module are one import


def _named(tree: ast.Module, source: str, path: Path) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of all that a file imports, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, source, is_package=path.name == "__init__.py")
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and _is_import_module(node):
            (name, *_) = node.args
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value, node.lineno


def _absolute(node: ast.ImportFrom, source: str, *, is_package: bool) -> str:
    """The module that a `from ... import` starts from; dots count from the file's folder."""
    if not node.level:
        return node.module or ""
    above = source.split(".")[: len(source.split(".")) - node.level + is_package]
    return ".".join([*above, *([node.module] if node.module else [])])


def _is_import_module(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name == "import_module" and bool(node.args)


def _module(name: str, modules: Mapping[str, Path]) -> str | None:
    """The module that a dotted name is, or is a name in."""
    if name in modules:
        return name
    parent = name.rpartition(".")[0]
    return parent if parent in modules else None


def room_of(module: str) -> str:
    """`cua_lab.viz.report` stands in `viz`; the package itself in no room."""
    return module.split(".")[1] if "." in module else ""


def arrows_up(imports: Sequence[Import], floors: Floors) -> list[Import]:
    """Imports from a floor above the importing room's own."""
    floor = {room: number for number, rooms in enumerate(floors) for room in rooms}  # 0: the top
    return [
        one
        for one in imports
        if (source := room_of(one.source)) in floor
        and (target := room_of(one.target)) in floor
        and floor[target] < floor[source]
    ]


def circles(imports: Sequence[Import]) -> list[list[Import]]:
    """A shortest circle through each knot of files that import each other.

    What a module imports from the `__init__` of its own folder does not count: to import the module
    at all Python has run that file first, so every folder that gathers its modules would be one.
    """
    edges: dict[str, dict[str, Import]] = {}
    for one in imports:
        if one.source.rpartition(".")[0] != one.target:
            edges.setdefault(one.source, {}).setdefault(one.target, one)
    ways = {start: _way(edges, start) for start in sorted(edges)}
    found: list[list[Import]] = []
    known: set[str] = set()
    for start, way in ways.items():
        if way and start not in known:
            found.append(way)
            known |= {other for other in _reached(edges, start) if start in _reached(edges, other)}
    return found


def _reached(edges: Mapping[str, Mapping[str, Import]], start: str) -> set[str]:
    """The files that a file imports, and those that they import, and so on."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges.get(waiting.pop(), {}).keys() - found
        found |= new
        waiting += new
    return found


def _way(edges: Mapping[str, Mapping[str, Import]], start: str) -> list[Import]:
    """The shortest way along imports from a file back to itself; empty where there is none."""
    ways: list[list[Import]] = [[one] for one in edges[start].values()]
    seen: set[str] = set()
    for way in ways:  # grows while it is walked: breadth first
        here = way[-1].target
        if here == start:
            return way
        if here not in seen:
            seen.add(here)
            ways += [[*way, one] for one in edges.get(here, {}).values()]
    return []


def strays(package: Path, floors: Floors) -> list[str]:
    """Rooms that no floor names, names that no room has, names written twice."""
    rooms = {room_of(module) for module in modules_of(package)} - {"", "__main__"}
    named = [room for floor in floors for room in floor]
    return [
        *(f"room {room!r} stands on no floor; add it" for room in sorted(rooms - {*named})),
        *(
            f"the floors name {room!r}, and there is no such room"
            for room in named
            if room not in rooms
        ),
        *(
            f"the floors name {room!r} twice"
            for room in sorted({r for r in named if named.count(r) > 1})
        ),
    ]


def faults(package: Path, floors: Floors) -> list[str]:
    """All that is wrong, a line each."""
    imports, root = imports_of(package), package.parent
    lines = strays(package, floors)
    for one in arrows_up(imports, floors):
        source, target = room_of(one.source), room_of(one.target)
        lines.append(f"{one.where(root)}: {source} imports {one.target}, but {target} is above it")
    for circle in circles(imports):
        way = " -> ".join(
            [*(f"{one.source} ({one.where(root)})" for one in circle), circle[0].source]
        )
        lines.append(f"circle: {way}")
    return lines


def main() -> int:
    """Print what is wrong with the repository that this file is in."""
    lines = faults(ROOT / "cua_lab", read_floors(ROOT / "pyproject.toml"))
    print("\n".join(lines) or "every import goes down")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
