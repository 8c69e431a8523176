"""`cua-lab gpu-check` on a CPU: the same updates, without a GPU's figures."""

import asyncio
from pathlib import Path

from cua_lab.bench.gpu_check import contract, described, parity, speed
from cua_lab.recipes import LoraSettings, TrainerSettings
from cua_lab.training.ranks import ALONE

LORA = TrainerSettings(gradient_checkpointing=True, lora=LoraSettings(r=4, alpha=8))


def test_the_contract_is_a_run_whose_engine_and_trainer_agree(tmp_path: Path) -> None:
    found = asyncio.run(contract("embedded", "cpu", tmp_path / "run"))
    assert (found.steps, found.failed) == (2, 0)
    assert found.episodes > 0
    assert found.gap is None or found.gap < 1e-4


def test_steps_of_a_real_shape_are_timed_and_their_memory_is_told() -> None:
    found = speed("tiny", LORA, rows=2, length=192, steps=1, ranks=ALONE)
    assert found.tokens == 2 * 192
    assert found.tokens_per_s > 0
    assert 0 < found.learning < found.parameters
    assert found.gap < 1e-4, "the same weights score the same tokens twice"
    assert found.of_peak is None, "a CPU has no data sheet here"
    assert found.peak_gib > found.worked_out_gib / 2
    said = described(found, None)
    assert "one process: nothing to compare" in said
    assert "no data sheet" in said


def test_one_process_is_as_itself() -> None:
    assert parity(TrainerSettings(), ALONE, rows=2) == 0.0
