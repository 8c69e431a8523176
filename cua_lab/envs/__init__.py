"""HUD v6 env packages: each a folder with env.py, tasks.py and Dockerfile.hud.

On a command line the lab's own go by a short name: `miniwob` is `cua_lab.envs.miniwob`.
"""

import importlib.util

from cua_lab.errors import LabError

SHORT_NAMES = ("lab", "browser", "miniwob")


def package_of(name: str) -> str:
    """The dotted name of an env package, which may be given by its short name."""
    if name in SHORT_NAMES:
        return f"{__name__}.{name}"
    try:
        found = importlib.util.find_spec(f"{name}.env") is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise LabError(
            f"no HUD env package {name!r}: give {', '.join(SHORT_NAMES)}, or the dotted name of a "
            "package of your own that holds env.py and tasks.py"
        )
    return name
