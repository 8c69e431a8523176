"""Scripted players and experts, and the demonstrations that a warm-up learns from."""

from __future__ import annotations

import importlib
from typing import Any

from cua_lab.env_package import EnvPackage
from cua_lab.errors import LabError


def players_of(package: EnvPackage) -> Any:
    """The module with a package's scripted players: `demonstrator(...)`, `random_player(...)`."""
    if package.players is None:
        raise LabError(
            f"{package.source} brings no players.py, so nobody can show its tasks: start from a"
            " checkpoint (policy.checkpoint), or write one like cua_lab/demonstrators/lab.py"
        )
    return importlib.import_module(package.players)
