"""One task for each kind of injection, by the kind's name; `split` chooses by what is seen."""

from __future__ import annotations

from hud.eval import Task

from cua_lab.envs.injection.env import env
from cua_lab.envs.injection.kinds import KINDS, Kind
from cua_lab.errors import LabError


def _task(kind: Kind) -> Task:
    task = env.templates["injection"](kind=kind.name, seed=0)
    task.slug = kind.name
    return task


tasks = [_task(kind) for kind in KINDS]


def split(name: str) -> list[Task]:
    """`seen` (a screenshot shows the order), `unseen` (only the page's text has it), or `all`."""
    if name == "all":
        return list(tasks)
    if name in ("seen", "unseen"):
        return [_task(kind) for kind in KINDS if kind.seen is (name == "seen")]
    raise LabError(f"no split {name!r} of the injections: give seen, unseen or all")
