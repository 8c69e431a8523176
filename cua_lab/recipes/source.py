"""YAML with the place of every key, so that an error can point at it.

Data model: plain values, and beside them `places`: the line of each key by its dotted path (an
item of a list goes by its own `name`, as in `stages.click.grpo`). Invariant: no key is read twice.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
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


def read_yaml(text: str, file: str, places: Places) -> Any:
    """Plain values of YAML text; fills `places`."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return {} if node is None else _value(loader, node, "", file, places)
    except yaml.YAMLError as error:
        raise LabError(f"{file} is not valid YAML: {error}") from error
    finally:
        loader.dispose()


def _value(loader: _Loader, node: yaml.Node, path: str, file: str, places: Places) -> Any:
    if isinstance(node, yaml.SequenceNode):
        names = [_name_in(loader, item, i) for i, item in enumerate(node.value)]
        return [
            _value(loader, item, f"{path}.{name}", file, places)
            for name, item in zip(names, node.value, strict=True)
        ]
    if not isinstance(node, yaml.MappingNode):
        return loader.construct_object(node, deep=True)
    tree: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key, line = str(loader.construct_object(key_node)), key_node.start_mark.line + 1
        if key in tree:
            raise LabError(f"{file}, line {line}: {key!r} is given twice in one section")
        inner = join(path, key)
        places[inner] = line
        tree[key] = _value(loader, value_node, inner, file, places)
    return tree


def _name_in(loader: _Loader, node: yaml.Node, index: int) -> str:
    """How a list's item is called in paths: by its own `name`, as in `stages.click`."""
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            if key_node.value == "name":
                return str(loader.construct_object(value_node))
    return str(index)


def join(path: str, key: str) -> str:
    """A dotted path one level down."""
    return f"{path}.{key}" if path else key
