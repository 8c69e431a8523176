"""Two processes compute what one does: gradient, metrics, and going on from a checkpoint."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cua_lab.policy.policy import load_policy
from cua_lab.training.checkpoint import load_checkpoint
from cua_lab.training.ranks import ALONE, Ranks
from cua_lab.training.shares import shares
from cua_lab.training.trainer import GRPOTrainer, advantages_of
from tests.training.rank_worker import PLACES, fresh, uneven
from tests.training.toys import tiny_policy

ROOT = Path(__file__).parents[2]


@dataclass
class Two:
    """What two processes left."""

    mode: str
    folder: Path

    def told(self, rank: int) -> dict:
        return json.loads((self.folder / f"told-{rank}.json").read_text())

    def gradient(self) -> torch.Tensor:
        """Of the first step: AdamW's first moment is (1 - beta1) of it."""
        return _gradient(self.folder / "whole" / "step-000001")


def _gradient(path: Path) -> torch.Tensor:
    states = load_file(path / "training/optimizer.safetensors")
    names = sorted(name for name in states if name.startswith("exp_avg/"))
    return torch.cat([states[name].flatten() for name in names]) / 0.1


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Path:
    """Both processes, once for all modes: most of their time is the start."""
    folder = tmp_path_factory.mktemp("ranks")
    shared = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.training.rank_worker", str(folder)]
    started = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate()[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors)
    return folder


@pytest.fixture(params=list(PLACES))
def two(request, played: Path) -> Two:
    return Two(request.param, played / request.param)


def one_process(two: Two) -> GRPOTrainer:
    return fresh(two.mode if two.mode != "shard" else "replicate", ALONE)


def test_the_gradient_of_a_batch_is_that_of_one_process(two: Two, tmp_path: Path) -> None:
    """The mean over the tokens of the WHOLE batch: a mean of the ranks' means would be off by the
    share of the tokens that each has."""
    trainer = one_process(two)
    metrics = trainer.step(uneven(tiny_policy()))
    named = sorted(
        (name, p) for name, p in trainer.policy.model.named_parameters() if p.requires_grad
    )
    expected = torch.cat([p.grad.flatten() for _, p in named if p.grad is not None])
    found = two.gradient()
    assert expected.norm() > 0.1
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 1e-5
    told = two.told(0)["first"]
    for name in ("loss", "policy_loss", "grad_norm", "entropy", "logprob_gap_max"):
        assert told[name] == pytest.approx(getattr(metrics, name), rel=1e-4, abs=1e-6), name
    for name in ("policy_tokens", "tokens", "padded_tokens", "episodes", "updates"):
        assert told[name] == getattr(metrics, name), name


def test_one_process_goes_on_where_two_stopped(two: Two) -> None:
    trainer = one_process(two)
    load_checkpoint(two.folder / "whole/step-000001", trainer, weights=trainer.learner)
    assert trainer.state.step == 1
    trainer.step(uneven(tiny_policy(), start=70), stale=True)
    theirs = load_policy(two.folder / "whole/step-000002").model.state_dict()
    for name, tensor in trainer.learner.plain():
        assert (tensor - theirs[name]).abs().max() < 1e-4, name


def test_two_processes_that_resume_do_as_if_they_had_not_stopped(two: Two) -> None:
    whole, resumed = (
        load_file(two.folder / run / "step-000002/model.safetensors")
        for run in ("whole", "resumed")
    )
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_what_one_rank_finds_wrong_stops_both(two: Two) -> None:
    """Without, the other would wait in the next collective for as long as it is given."""
    first, second = (two.told(rank)["refused"] for rank in range(2))
    assert "engine and trainer disagree" in first
    assert second == first


def test_every_rank_has_as_many_pieces_as_the_others() -> None:
    trainer = fresh("replicate", ALONE)
    samples = uneven(tiny_policy())
    minibatches = trainer._minibatches(
        samples, advantages_of(samples, trainer.settings), stale=False
    )
    dealt = shares(minibatches, 2)
    assert [len(share[0]) for share in dealt] == [-(-len(minibatches[0]) // 2)] * 2
    live = [piece.place for share in dealt for piece in share[0] if piece.live]
    assert sorted(live) == list(range(len(minibatches[0])))
    dead = [piece for share in dealt for piece in share[0] if not piece.live]
    assert all(float(piece.weights.abs().sum()) == 0 for piece in dead)


def test_alone_nothing_is_sent() -> None:
    ranks = Ranks()
    assert ranks.deal(["mine"]) == "mine"
    assert ranks.gather(3) == [3]
    assert ranks.agree(None) is None
    with pytest.raises(ValueError, match="2 shares for 1 ranks"):
        ranks.deal(["mine", "yours"])
