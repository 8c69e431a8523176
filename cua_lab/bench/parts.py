"""The parts of `cua-lab bench`: each does the same work in our way and in a named peer's.

What each measures, and beside which peer, stands at the head of `screen_parts`, `token_parts`,
`training_parts`, `rollout_part` and `run_part`. Invariant: a part that compares results says in
its note whether they are equal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cua_lab.bench import rollout_part, run_part, screen_parts, token_parts, training_parts
from cua_lab.bench.machine_limits import Limits
from cua_lab.bench.pairs import Measured

PARTS: dict[str, Callable[[int, Limits], Awaitable[Measured]]] = {
    "screenshot": screen_parts.screenshot,
    "settle": screen_parts.settle,
    "shim": token_parts.shim,
    "stitch": token_parts.stitching,
    "prefill": token_parts.prefill,
    "decode": token_parts.decode,
    "episode": screen_parts.episode,
    "sft": training_parts.sft,
    "grpo": training_parts.grpo,
    "rollout": rollout_part.rollout,
    "run": run_part.run,
    "viewer": token_parts.viewer,
}
"""By name: how many rounds, and the machine's limits -> what was found."""
ON_REQUEST = {"settle": "needs a browser", "run": "takes minutes a round"}
"""Parts that are measured where they are named only, and why."""
