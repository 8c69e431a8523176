"""What a HUD task row needs and this machine lacks, before a run is started on it.

Invariant: `missing` starts nothing and contacts nobody; it looks at installed packages, variables
and files only, and every line says how to fix it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DESKTOP_VM = "a desktop virtual machine"


def missing(
    row: Mapping[str, Any],
    *,
    env_packages: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    root: str | Path = ".",
) -> list[str]:
    """What stands between this row and an episode; empty when nothing does.

    `env_packages` maps a row's env (`osworld`, `webarena`) to the HUD env package that serves it:
    a dotted name or a directory. By default an env must be a package under `cua_lab.envs`.
    """
    metadata = row.get("metadata") or {}
    task, needs = metadata.get("hud_task") or {}, metadata.get("needs") or {}
    variables = os.environ if variables is None else variables
    lacks = _env(str(task.get("env")), env_packages or {})
    for name in needs.get("variables", ()):
        if not variables.get(name):
            lacks.append(f"{name} is not set: the address of that site, e.g. http://host:port")
    for name in needs.get("files", ()):
        if not Path(root, name).is_file():
            lacks.append(f"{name} does not exist: log in once and save the browser's state there")
    if needs.get("snapshot"):
        known = variables.get("OSWORLD_SNAPSHOTS", "").split(",")
        if needs["snapshot"] not in known:
            lacks.append(
                f"snapshot {needs['snapshot']!r} is not among OSWORLD_SNAPSHOTS: prepare it in"
                f" {DESKTOP_VM} and add its name"
            )
    if needs.get("model_judge") and not variables.get("OPENAI_API_KEY"):
        lacks.append("fuzzy_match is graded by a model: OPENAI_API_KEY is not set")
    return lacks


def _env(env: str, packages: Mapping[str, str]) -> list[str]:
    package = packages.get(env, f"cua_lab.envs.{env}")
    if Path(package).is_dir():
        found = Path(package, "env.py").is_file()
    else:
        try:
            found = importlib.util.find_spec(package) is not None
        except (ImportError, ValueError):
            found = False
    if found:
        return []
    return [
        f"no HUD env package serves {env!r} (looked for {package}): install one and name it,"
        f" e.g. env_packages={{{env!r}: 'my_envs.{env}'}}"
    ]
