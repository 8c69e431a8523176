"""YAML with the place of every key, so that an error can point at it, and overrides on top.

Data model: plain values, and beside them `places`: the line of each key by its dotted path (an
item of a list goes by its own `name`, as in `stages.click.grpo`). Invariant: no key is read twice,
and whatever is in a file, reading it ends soon, in plain values or in one line that says why not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cua_lab.errors import LabError

Places = dict[str, int | str]
"""Dotted path -> line in the file, or the override that set it."""


class _Loader(yaml.SafeLoader):
    """YAML with 2e-4 as a number: YAML 1.1 reads it as text because it has no dot."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where values came from, so that an error can point at it."""

    file: str
    places: Mapping[str, int | str]

    def error(self, key: str, text: str) -> LabError:
        """`file, line n: text`, with the line of the key or of the section it stands in."""
        shared = ".".join(key.split(".")[2:]) if key.startswith("stages.") else ""
        place = self.places.get(key) or self.places.get(shared)
        while place is None and key:
            key = key.rpartition(".")[0]
            place = self.places.get(key)
        if isinstance(place, int):
            return LabError(f"{self.file}, line {place}: {text}")
        return LabError(f"{place or self.file}: {text}")


MAX_CHARS = 2**20
"""Of a recipe's file; the longest one here has 4,000."""
MAX_VALUES = 20_000
"""Values of a file with its aliases written out: nine lines of aliases can stand for 10**9."""
PLAIN = (str, int, float, bool, type(None))


def read_text(path: Path) -> str:
    """The text of a recipe's file."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise LabError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8, without a BOM or"
            " with one"
        ) from error
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror or error}") from error


def read_yaml(text: str, file: str, places: Places) -> Any:
    """Plain values of YAML text; fills `places`."""
    if len(text) > MAX_CHARS:
        raise LabError(f"{file} has {len(text):,} characters; a recipe has at most {MAX_CHARS:,}")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return {} if node is None else _Reader(loader, file, places).value(node, "")
    except yaml.YAMLError as error:
        raise LabError(f"{file} is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise LabError(f"{file} is nested too deeply to be a recipe") from error


@dataclass(slots=True)
class _Reader:
    """From nodes to plain values."""

    loader: _Loader
    file: str
    places: Places
    count: int = 0

    def value(self, node: yaml.Node, path: str) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            raise LabError(
                f"{self.file} stands for more than {MAX_VALUES:,} values once its aliases (*name)"
                " are written out; write what you mean without them"
            )
        if isinstance(node, yaml.SequenceNode):
            names = [self._name_in(item, index) for index, item in enumerate(node.value)]
            return [
                self.value(item, f"{path}.{name}")
                for name, item in zip(names, node.value, strict=True)
            ]
        if not isinstance(node, yaml.MappingNode):
            return self._scalar(node)
        tree: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, line = str(self._scalar(key_node)), key_node.start_mark.line + 1
            if key in tree:
                raise LabError(f"{self.file}, line {line}: {key!r} is given twice in one section")
            inner = join(path, key)
            self.places[inner] = line
            tree[key] = self.value(value_node, inner)
        return tree

    def _scalar(self, node: yaml.Node) -> Any:
        """Text, a number, true, false or nothing; a tag that makes anything else is refused."""
        where = f"{self.file}, line {node.start_mark.line + 1}"
        if not isinstance(node, yaml.ScalarNode):
            raise LabError(f"{where}: a list or a section cannot be a key")
        try:
            value = self.loader.construct_object(node, deep=True)
        except (
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            AttributeError,
            OverflowError,
        ) as error:
            raise LabError(f"{where}: {node.value!r} is no {node.tag.split(':')[-1]}") from error
        if not isinstance(value, PLAIN):
            raise LabError(
                f"{where}: {node.value!r} is read as a {type(value).__name__}; a recipe holds text,"
                " numbers, true and false: put quotes around it to say that it is text"
            )
        return value

    def _name_in(self, node: yaml.Node, index: int) -> str:
        """How a list's item is called in paths: by its own `name`, as in `stages.click`."""
        if isinstance(node, yaml.MappingNode):
            for key_node, value_node in node.value:
                if key_node.value == "name" and isinstance(value_node, yaml.ScalarNode):
                    return str(self._scalar(value_node))
        return str(index)


@dataclass(frozen=True, slots=True)
class Override:
    """`key.sub=value` from a command line."""

    text: str
    keys: tuple[str, ...]
    value: Any

    @classmethod
    def parse(cls, text: str, *, example: str) -> Override:
        path, equals, value = text.partition("=")
        keys = tuple(path.strip().split("."))
        if not equals or not all(keys):
            form = f"write it as section.key=value, such as {example}"
            raise LabError(f"override {text!r}: {form}")
        found = read_yaml(value, f"override {text!r}", {}) if value.strip() else None
        return cls(text, keys, found)

    @property
    def place(self) -> str:
        return f"override {self.text!r}"

    def apply(
        self, tree: dict[str, Any], places: Places, *, keys: Sequence[str] = (), prefix: str = ""
    ) -> None:
        """Set the value in a tree; `keys` and `prefix` where the tree is a part of the whole."""
        keys = keys or self.keys
        places[prefix + ".".join(keys)] = self.place
        for key in keys[:-1]:
            if tree.get(key) is None:
                tree[key] = {}
            tree = tree[key]
            if not isinstance(tree, dict):
                raise LabError(f"{self.place}: {key!r} is a value, not a section")
        tree[keys[-1]] = self.value


def join(path: str, key: str) -> str:
    """A dotted path one level down."""
    return f"{path}.{key}" if path else key
