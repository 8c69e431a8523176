"""OSWorld task JSON as HUD task rows. Licence: Apache-2.0.

| public field                                                  | ours                            |
|---------------------------------------------------------------|---------------------------------|
| `instruction`                                                 | `prompt`                        |
| `id`                                                          | `label`, slug, `args.task_id`   |
| `snapshot`, `config`, `evaluator`, `related_apps`, `proxy`, `fixed_ip` | `args`, as they are    |
| `source`, `trajectory`, `possibility_of_env_change`, ...      | `metadata.osworld`              |

OSWorld gives tasks, not clicks: there is no coordinate here. A row needs an environment that can
restore the snapshot, run `config` and judge with `evaluator`: `metadata.needs` names what, and
`preflight.missing` says which of it this machine lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cua_lab.dataset.formats.fields import Row, need, rest, strings
from cua_lab.errors import LabError

LICENCE = "Apache-2.0"
"""Of the public rows; `cua-lab data convert` says it."""
ENV = "osworld"
TEMPLATE = "osworld-task"
_ARGS = ("snapshot", "config", "evaluator", "related_apps", "proxy", "fixed_ip")


def read_task(row: Mapping[str, Any], images: str = "") -> list[Row]:
    """One task as one HUD task row."""
    name = need(row, "id", str)
    evaluator = need(row, "evaluator", Mapping)
    if "func" not in evaluator:
        raise LabError("the evaluator has no func; nothing could grade this task")
    args = {"task_id": name} | {key: row[key] for key in _ARGS if key in row}
    return [
        {
            "prompt": [{"role": "user", "content": need(row, "instruction", str)}],
            "label": name,
            "metadata": {
                "hud_task": {"env": ENV, "id": TEMPLATE, "args": args, "slug": f"osworld-{name}"},
                "needs": _needs(row),
                "osworld": rest(row, "id", "instruction", *_ARGS),
            },
        }
    ]


def _needs(row: Mapping[str, Any]) -> Row:
    steps = need(row, "config", list) if row.get("config") is not None else []
    kinds = [need(step, "type", str) for step in steps]
    func = row["evaluator"]["func"]
    return {
        "env": ENV,
        "snapshot": row.get("snapshot"),
        "apps": strings(row.get("related_apps"), "related_apps"),
        "setup": sorted(set(kinds)),
        "graders": [func] if isinstance(func, str) else strings(func, "evaluator.func"),
        "network": bool(row.get("proxy")) or "download" in kinds,
    }
