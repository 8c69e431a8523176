"""Annotated YAML into frozen dataclasses, strictly.

Data model: a tree of plain values with the line each key stands on. A recipe may give a section
(`grpo:`) at the top, for all stages, and again inside a stage, for that one; an override from the
command line (`grpo.steps=4`, `stages.click.grpo.lr=1e-4`) wins over both. Invariant: every key of
the file lands in a field or is an error that names key, file, line and what is allowed there.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from cua_lab.errors import LabError
from cua_lab.files import read_text
from cua_lab.ranges import Range
from cua_lab.recipes.settings import Recipe, Stage
from cua_lab.recipes.source import Override, Places, Source, join, read_yaml

FOLDER = Path(__file__).parent
S = TypeVar("S")
SHARED = frozenset(field.name for field in dataclasses.fields(Stage)) - {"name"}
"""Sections that may also stand at the top of a recipe, for all of its stages."""


def recipe_names() -> list[str]:
    """The recipes of the main job that come with the package; those of SFT are `recipes.sft`'s."""
    return sorted(p.stem for p in FOLDER.glob("*.yaml") if not p.stem.startswith("sft-"))


def load_recipe(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe by its name (`laptop`) or its file, with `key.sub=value` overrides on top."""
    path = recipe_file(name_or_path, recipe_names(), kind="recipe")
    text = read_text(path)
    return parse_recipe(text, file=path.name, name=path.stem, overrides=overrides)


def recipe_file(name_or_path: str | Path, names: Sequence[str], *, kind: str) -> Path:
    """The file of a recipe given by one of the package's `names` or by a path."""
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if str(name_or_path) not in names:
            raise LabError(
                f"no {kind} {str(name_or_path)!r}; there are {', '.join(names)}."
                " A recipe of your own is given by its file, my-recipe.yaml"
            )
        path = FOLDER / f"{name_or_path}.yaml"
    if not path.is_file():
        raise LabError(f"there is no file {path}; the package's: {', '.join(names)}")
    return path


def about(file: Path) -> str:
    """What a recipe is for and how long it takes: the first line of its file, behind its name."""
    first = read_text(file).split("\n", 1)[0]
    return first.removeprefix("# ").removeprefix(f"{file.stem}: ")


def changes(before: Any, after: Any, path: str = "") -> list[str]:
    """Where two recipes differ, each place by its name: `run.seed is 5, not 6`."""
    before, after = to_tree(before), to_tree(after)
    if isinstance(before, dict) and isinstance(after, dict):
        keys = list(dict.fromkeys([*before, *after]))
        return [
            one
            for key in keys
            for one in changes(before.get(key), after.get(key), join(path, str(key)))
        ]
    named = isinstance(before, list) and all(isinstance(x, dict) and "name" in x for x in before)
    if (
        named
        and isinstance(after, list)
        and [x["name"] for x in before] == [x.get("name") for x in after]
    ):
        pairs = zip(before, after, strict=True)
        return [one for a, b in pairs for one in changes(a, b, join(path, a["name"]))]
    return [] if before == after else [f"{path} is {before!r}, not {after!r}"]


def parse_recipe(
    text: str, *, file: str = "recipe", name: str = "recipe", overrides: Sequence[str] = ()
) -> Recipe:
    """A recipe from YAML text; `name` is used where the text gives none."""
    places: Places = {}
    tree = read_yaml(text, file, places)
    if not isinstance(tree, dict):
        raise LabError(f"{file}: a recipe is a mapping of sections, not a {type(tree).__name__}")
    tree.setdefault("name", name)
    tree = _spread(tree, Source(file, places))
    for text in overrides:
        _apply(Override.parse(text, example="grpo.steps=4"), tree, places)
    recipe: Recipe = _build(Recipe, tree, "", Source(file, places))
    return recipe


def build_settings(cls: type[S], tree: Any, *, file: str, places: Places | None = None) -> S:
    """Any tree of settings dataclasses from plain values, as strictly as a recipe."""
    built: S = _build(cls, tree, "", Source(file, places or {}))
    return built


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as YAML: every value in its place, loadable again."""
    return yaml.safe_dump(to_tree(recipe), sort_keys=False, allow_unicode=True)


def to_tree(value: Any) -> Any:
    """Dataclasses as mappings, tuples as lists: what YAML and JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (f for f in dataclasses.fields(value) if f.init)
        return {f.name: to_tree(getattr(value, f.name)) for f in fields}
    if isinstance(value, Mapping):
        return {key: to_tree(item) for key, item in value.items()}
    return [to_tree(item) for item in value] if isinstance(value, tuple) else value


# ---------------------------------------------------------------- stages and overrides


def _spread(tree: dict[str, Any], source: Source) -> dict[str, Any]:
    """Copy the shared sections into each stage, below the stage's own values."""
    shared = {key: tree.pop(key) for key in list(tree) if key in SHARED}
    stages = tree.get("stages")
    if stages is None:
        raise source.error("", 'there is no "stages": a recipe needs at least one')
    if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
        raise source.error("stages", '"stages" must be a list of sections, each with a "name"')
    tree["stages"] = [_merge(shared, stage) for stage in stages]
    return tree


def _merge(below: Any, above: Any) -> Any:
    """`above` over `below`; an empty section takes nothing away."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return below if above is None else above
    merged = dict(below)
    for key, value in above.items():
        merged[key] = _merge(below[key], value) if key in below else value
    return merged


def _apply(override: Override, tree: dict[str, Any], places: Places) -> None:
    """Set an override in the tree; one of a shared section is set in every stage."""
    keys, stages = override.keys, tree["stages"]
    if keys[0] in SHARED:
        for stage in stages:
            override.apply(stage, places, prefix=f"stages.{stage.get('name')}.")
    elif keys[0] == "stages" and len(keys) > 2:
        named = [stage for stage in stages if stage.get("name") == keys[1]]
        if not named:
            known = ", ".join(str(stage.get("name")) for stage in stages)
            raise LabError(f"{override.place}: no stage {keys[1]!r}; there are {known}")
        for stage in named:
            override.apply(stage, places, keys=keys[2:], prefix=f"stages.{keys[1]}.")
    else:
        override.apply(tree, places)


# ---------------------------------------------------------------- building, with checks


def _build(cls: Any, tree: Any, path: str, source: Source) -> Any:
    """A dataclass from a mapping; every key must be a field, every value of its kind."""
    tree = {} if tree is None else tree
    if not isinstance(tree, dict):
        raise source.error(path, f"{path} is {tree!r}; it is a section with keys of its own")
    hints = get_type_hints(cls, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    tree = _with_today_s_names(tree, fields, path, source)
    for key in tree:
        if key not in fields:
            raise source.error(join(path, key), _unknown(key, path, fields))
    values = {
        key: _convert(value, hints[key], join(path, key), source)
        for key, value in tree.items()
        if value is not None or fields[key].metadata.get("null") != "default"
    }
    for key, field in fields.items():
        required = field.default is dataclasses.MISSING
        if key not in values and required and field.default_factory is dataclasses.MISSING:
            raise source.error(path, f"{join(path, key)} is missing and has no default")
    try:
        return cls(**values)
    except (ValueError, LabError) as error:
        raise source.error(path, f"{path or 'the recipe'}: {error}") from error


def _with_today_s_names(
    tree: Mapping[str, Any], fields: Mapping[str, Any], path: str, source: Source
) -> Mapping[str, Any]:
    """An older recipe's keys (a finished run's config.yaml has some) as the fields are called."""
    former = {
        f.metadata["formerly"]: name for name, f in fields.items() if "formerly" in f.metadata
    }
    for old, new in former.items():
        if old in tree and new in tree:
            raise source.error(join(path, old), f"{old!r} is {new!r} by its old name; give one")
    return {former.get(key, key): value for key, value in tree.items()}


def _unknown(key: str, path: str, fields: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(key, fields, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    place = f"section {path!r}" if path else "a recipe"
    return f"unknown key {join(path, key)!r}{hint} Allowed in {place}: {', '.join(fields)}"


def _convert(value: Any, hint: Any, path: str, source: Source) -> Any:
    allowed: Range | None = None
    if get_origin(hint) is Annotated:
        hint, allowed = get_args(hint)[0], get_args(hint)[1]
    if get_origin(hint) in (Union, types.UnionType):
        if value is None and type(None) in get_args(hint):
            return None
        (option,) = [option for option in get_args(hint) if option is not type(None)]
        return _convert(value, option, path, source)
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, path, source)
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise source.error(path, f"{path} is {value!r}; expected a list")
        kind, items = get_args(hint)[0], []
        for index, item in enumerate(value):
            name = item.get("name", index) if isinstance(item, dict) else index
            items.append(_convert(item, kind, f"{path}.{name}", source))
        return tuple(items)
    if get_origin(hint) is dict:
        if not isinstance(value, dict):
            raise source.error(path, f"{path} is {value!r}; expected a mapping of names to values")
        return value
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            options = ", ".join(map(repr, get_args(hint)))
            raise source.error(path, f"{path} is {value!r}; expected one of {options}")
        return value
    return _scalar(value, hint, allowed, path, source)


def _scalar(value: Any, hint: Any, allowed: Range | None, path: str, source: Source) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    fits = {
        bool: isinstance(value, bool),
        int: number and isinstance(value, int),
        float: number and math.isfinite(value),
        str: isinstance(value, str),
    }
    expected = words[hint] + (f" {allowed}" if allowed else "")
    if not fits[hint] or (allowed is not None and value not in allowed):
        raise source.error(path, f"{path} is {value!r}; expected {expected}")
    return float(value) if hint is float else value
