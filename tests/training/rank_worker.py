"""One of two processes (gloo, CPU) of a training, started by `test_ranks.py`.

    python -m tests.training.rank_worker FOLDER

Modes are `replicate` (each rank holds the weights), `shard` (FSDP2) and `lora`. Of each, rank 0
leaves in FOLDER/MODE a checkpoint after each of two steps and one of a step that goes on from the
first; both ranks leave what they were told.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import torch

from cua_lab.recipes import GrpoSettings, LoraSettings, TrainerSettings
from cua_lab.training.checkpoint import save_checkpoint
from cua_lab.training.ranks import join, leave
from cua_lab.training.trainer import GRPOTrainer, LogprobMismatch
from tests.training.toys import batch, roll_out, tiny_policy

SETTINGS = GrpoSettings(
    lr=1e-3, warmup_steps=0, grad_clip=1e9, tokens_per_microbatch=60, logprob_gap_limit=1e-4
)
PLACES = {
    "replicate": TrainerSettings(),
    "shard": TrainerSettings(shard=True, gradient_checkpointing=True),
    "lora": TrainerSettings(lora=LoraSettings(r=2, alpha=4)),
}


def reward(output) -> float:
    return float(sum(output) % 7)


def uneven(policy, start: int = 0):
    """Two groups of answers of one to four tokens after prompts of different lengths: more
    micro-batches than ranks, an odd number of them, and another number of tokens on each rank."""
    samples = []
    for i in range(3):
        text, group = "click " * (i + 1), f"g{i % 2}"
        seeds = [start + i, start + i + 9, start + i + 20]
        samples += roll_out(policy, reward, seeds=seeds, group=group, tokens=1 + i, text=text)
    return samples


def fresh(mode: str, ranks, **changed) -> GRPOTrainer:
    settings = dataclasses.replace(SETTINGS, **changed)
    return GRPOTrainer(tiny_policy(), settings, place=PLACES[mode], ranks=ranks, seed=5)


def save(trainer: GRPOTrainer, folder: Path) -> None:
    trainer.gather()
    save_checkpoint(folder, trainer, weights=trainer.learner, keep=9)


def play(mode: str, ranks, folder: Path) -> dict:
    """Rank 0's side of both trainings; the samples are rolled out of plain policies."""
    first, later = uneven(tiny_policy()), uneven(tiny_policy(), start=70)
    trainer = fresh(mode, ranks)
    told = {"first": trainer.step(first).record(timing=False)}
    save(trainer, folder / "whole")
    told["second"] = trainer.step(later, stale=True).record(timing=False)
    save(trainer, folder / "whole")
    trainer.close()
    resumed = fresh(mode, ranks)
    resumed.load(folder / "whole" / "step-000001")
    resumed.step(later, stale=True)
    save(resumed, folder / "resumed")
    resumed.close()
    return told


def refused(mode: str, ranks) -> str:
    """What a rank says of samples that another policy drew."""
    trainer = fresh(mode, ranks)
    try:
        if ranks.first:
            trainer.step(batch(tiny_policy(seed=3), reward, size=2))
        else:
            trainer.follow()
    except LogprobMismatch as error:
        return str(error)
    return "nothing"


def one_mode(mode: str, ranks, folder: Path) -> None:
    if ranks.first:
        told = play(mode, ranks, folder)
    else:
        told = {}
        for _ in range(2):
            fresh(mode, ranks).follow()
    told["refused"] = refused(mode, ranks)
    folder.mkdir(exist_ok=True)
    (folder / f"told-{ranks.rank}.json").write_text(json.dumps(told), encoding="utf-8")


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    ranks = join(cpu=True)
    assert ranks.count == 2
    for mode in PLACES:
        one_mode(mode, ranks, folder / mode)
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
