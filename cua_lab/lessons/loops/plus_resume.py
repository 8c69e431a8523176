"""grpo.py, plus resume: a checkpoint after each step, and going on from the last one.

Invariant: stopping and going on gives the same weights, bit for bit, as never stopping. Three
things make it so: the optimizer's moments are saved with the weights, the counter of steps too, and
every start and every draw is a function of that counter.

The real one, `cua_lab.training.checkpoint`, is used here as it is: it writes beside, flushes,
renames, and lists every file with its digest, so that a torn checkpoint is never picked up. What a
run adds is when to save and what else to keep (`cua_lab.run.stage`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cua_lab.demonstrators.demos import ClickPlayer
from cua_lab.lessons.loops.click_task import click_player
from cua_lab.lessons.loops.grpo import Grpo, main
from cua_lab.policy.policy import Policy
from cua_lab.training.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint


class PlusResume(Grpo):
    """Goes on where the folder's last checkpoint ends."""

    folder = Path(tempfile.gettempdir()) / "cua-lab-plus-resume"

    def __init__(self, policy: Policy, player: ClickPlayer) -> None:
        super().__init__(policy, player)
        saved = latest_checkpoint(self.folder)
        if saved is not None:
            load_checkpoint(saved, self)

    def step(self) -> float:
        reward = super().step()
        save_checkpoint(self.folder, self)
        return reward


if __name__ == "__main__":
    main(PlusResume, click_player())  # stop it with Ctrl-C and start it again
