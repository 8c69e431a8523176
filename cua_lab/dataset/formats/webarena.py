"""WebArena config JSON (`config_files/test.raw.json`) as HUD task rows. Licence: Apache-2.0.

| public field                                             | ours                          |
|----------------------------------------------------------|-------------------------------|
| `intent`                                                 | `prompt`                      |
| `task_id`                                                | `label`, slug, `args.task_id` |
| `sites`, `start_url`, `require_login`, `storage_state`,  |                               |
| `geolocation`, `require_reset`, `eval`                   | `args`, as they are           |
| `intent_template`, `instantiation_dict`,                 |                               |
| `intent_template_id`, ...                                | `metadata.webarena`           |

Start addresses hold placeholders such as `__SHOPPING__`: the environment fills them from the
variables `SHOPPING`, `SHOPPING_ADMIN`, `REDDIT`, `GITLAB`, `WIKIPEDIA`, `MAP`, `HOMEPAGE`.
`metadata.needs` names them; `preflight.missing` says which are not set. No coordinates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cua_lab.dataset.formats.fields import Row, need, rest, strings
from cua_lab.errors import LabError

LICENCE = "Apache-2.0"
"""Of the public rows; `cua-lab data convert` says it."""
ENV = "webarena"
TEMPLATE = "webarena-task"
_ARGS = (
    "sites",
    "start_url",
    "require_login",
    "storage_state",
    "geolocation",
    "require_reset",
    "eval",
)


def read_config(row: Mapping[str, Any], images: str = "") -> list[Row]:
    """One config as one HUD task row."""
    number = need(row, "task_id", int)
    args = {"task_id": number} | {key: row[key] for key in _ARGS if key in row}
    return [
        {
            "prompt": [{"role": "user", "content": need(row, "intent", str)}],
            "label": str(number),
            "metadata": {
                "hud_task": {
                    "env": ENV,
                    "id": TEMPLATE,
                    "args": args,
                    "slug": f"webarena-{number}",
                },
                "needs": _needs(row),
                "webarena": rest(row, "task_id", "intent", *_ARGS),
            },
        }
    ]


def _needs(row: Mapping[str, Any]) -> Row:
    names = re.findall(r"__([A-Z_]+?)__", str(row.get("start_url", "")))
    names += [site.upper() for site in strings(row.get("sites"), "sites")]
    judge = need(row, "eval", Mapping)
    answers = judge.get("reference_answers") or {}
    if not isinstance(answers, Mapping):
        raise LabError("eval.reference_answers is no object of exact_match, must_include, ...")
    return {
        "env": ENV,
        "variables": sorted(set(names)),
        "files": [row["storage_state"]] if row.get("storage_state") else [],
        "graders": strings(judge.get("eval_types"), "eval_types"),
        "model_judge": "fuzzy_match" in answers,
        "network": False,
    }
