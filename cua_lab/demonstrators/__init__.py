"""Scripted players and experts, and the demonstrations that a warm-up learns from."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from cua_lab.env_package import EnvPackage, load_file
from cua_lab.errors import LabError


def players_of(package: EnvPackage) -> Any:
    """The module with a package's scripted players: `demonstrator(...)`, `random_player(...)`."""
    if package.players is None:
        raise LabError(
            f"{package.source} brings no players.py, so nobody can show its tasks: start from a"
            " checkpoint (policy.checkpoint), or write one like cua_lab/demonstrators/lab.py;"
            " `cua-lab new` writes a package with one, and lesson 12_your_own explains it"
        )
    if isinstance(package.players, Path):
        return load_file(package.players)
    return importlib.import_module(package.players)
