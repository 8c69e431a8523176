"""The files of weights of a checkpoint folder, read by their heads: names, shapes and types.

A folder has one `model.safetensors`, or shards that `model.safetensors.index.json` names. Nothing
here loads a network. Invariant: what `check_files` lets pass is whole and holds plain numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cua_lab.errors import LabError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
NUMBERS = frozenset({"F64", "F32", "F16", "BF16"})
"""Types of safetensors that are weights as they stand; integers and float8 need their scales."""


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a folder's weights: one, or the shards that its index names."""
    index = folder / INDEX
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if index.is_file():
        try:
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise LabError(f"{index} is no index of shards: {error!r}") from error
        return [folder / name for name in sorted(names)]
    if not folder.is_dir():
        raise LabError(f"{folder} is not there; give a folder with {SINGLE}")
    others = sorted(file.name for file in folder.glob("*.safetensors"))
    hint = f"; it has {', '.join(others)}, which no engine looks for" if others else ""
    raise LabError(f"{folder} has no *.safetensors weights called {SINGLE} or {INDEX}{hint}")


def check_files(folder: Path) -> None:
    """Every file of weights that the folder names is there, whole, and holds plain numbers."""
    from safetensors import SafetensorError, safe_open

    for file in weight_files(folder):
        if not file.is_file():
            raise LabError(f"{folder} is not whole: {INDEX} names {file.name}, which is missing")
        try:
            with safe_open(str(file), framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  (a handle, not a dict)
                    kind = tensors.get_slice(name).get_dtype()
                    if kind not in NUMBERS:
                        raise LabError(
                            f"{file} cannot be used: {name} is stored as {kind}; quantised weights"
                            " are no weights without their scales; give a bfloat16 or float32 copy"
                        )
        except (SafetensorError, OSError) as error:
            raise LabError(f"{file} is torn or no safetensors file: {error}") from error


def check_names(old: Path, new: Path) -> None:
    """Refuse a folder whose tensors have other names or shapes than another folder's.

    The names are those of the files: engines read them, too, each by rules of its own.
    """
    own, found = _shapes(old), _shapes(new)
    common = own.keys() & found.keys()
    misshapen = {n: (found[n], own[n]) for n in common if found[n] != own[n]}
    refuse_misfit(new, len(own), own.keys() - found.keys(), found.keys() - own.keys(), misshapen)


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    from safetensors import safe_open

    shapes = {}
    for file in weight_files(folder):
        with safe_open(str(file), framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  (a handle, not a dict)
                shapes[name] = tuple(tensors.get_slice(name).get_shape())
    return shapes


def stored(folder: Path, endings: tuple[str, ...]) -> dict[str, Tensor]:
    """Tensors of a folder by the end of their name, as they lie there."""
    from safetensors import safe_open

    found = {}
    for file in weight_files(folder):
        with safe_open(str(file), framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  (a handle, not a dict)
                for ending in endings:
                    if name == ending or name.endswith("." + ending):
                        found[ending] = tensors.get_tensor(name)
    return found


def refuse_misfit(
    source: Path,
    count: int,
    missing: Iterable[str],
    unexpected: Iterable[str],
    misshapen: Mapping[str, tuple[Any, Any]],
) -> None:
    """One error for all that differs; none for nothing."""
    absent, surplus = sorted(missing), sorted(unexpected)
    parts = []
    if absent:
        parts.append(f"{len(absent)} of {count} tensors are missing, first {absent[0]!r}")
    if surplus:
        parts.append(f"{len(surplus)} are not the network's, first {surplus[0]!r}")
    if misshapen:
        name = min(misshapen)
        found, own = (tuple(shape) for shape in misshapen[name])
        parts.append(
            f"{len(misshapen)} have another shape, first {name!r}: {found}, expected {own}"
        )
    if parts:
        raise LabError(
            f"{source} does not fit the network: {'; '.join(parts)}{_renamed(absent, surplus)};"
            " nothing was changed"
        )


def _renamed(missing: list[str], unexpected: list[str]) -> str:
    """What was done to the names, where it can be told."""
    if any(".base_layer." in name or "lora_" in name for name in unexpected):
        return "; these are a network with adapters: merge them before saving"
    for name in unexpected:
        for wanted in missing:
            if name.endswith("." + wanted):
                prefix = name.removesuffix(wanted)
                return f"; names carry the prefix {prefix!r}: save the unwrapped network"
            if wanted.endswith("." + name):
                prefix = wanted.removesuffix(name)
                return f"; names lack the prefix {prefix!r}"
    return ""
