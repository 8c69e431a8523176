"""Ours beside a peer: turns are taken, medians are paired, and the page names the machine."""

import asyncio
import json
from pathlib import Path

import pytest

from cua_lab.bench import comparison
from cua_lab.bench.machine_limits import Limits, limits
from cua_lab.bench.pairs import Pair, Timing, interleaved, markdown, pairs_of
from cua_lab.bench.parts import PARTS
from cua_lab.errors import LabError


def test_each_way_takes_its_turn_and_the_first_round_does_not_count() -> None:
    called: list[str] = []

    def way(name: str):
        async def run() -> None:
            called.append(name)

        return run

    found = asyncio.run(interleaved({"ours": way("a"), "peer": way("b")}, rounds=2))
    assert called == ["a", "b"] * 3
    assert [len(timing.each_ms) for timing in found.values()] == [2, 2]


def test_a_ratio_is_of_medians_and_one_slow_round_does_not_move_it() -> None:
    ours, peer = Timing("ours", (1.0, 1.0, 900.0)), Timing("peer", (3.0, 3.0, 3.0))
    (pair,) = pairs_of("part", "work", {"ours": ours, "peer": peer})
    assert pair.times == 3
    assert pair.peer.spread == 0
    assert "3.0x" in markdown([pair])
    assert pair.record()["rounds"] == 3


def test_limits_are_measured_and_positive() -> None:
    found = asyncio.run(limits(rounds=1))
    assert min(found.gflops, found.gib_per_s, found.loopback_ms, found.png_ms) > 0


@pytest.mark.parametrize("part", ["screenshot", "stitch", "episode"])
def test_a_part_measures_both_sides_of_the_same_work(part: str) -> None:
    (pair,) = asyncio.run(PARTS[part](1))
    assert pair.part == part
    assert pair.ours.ms > 0
    assert pair.peer.ms > 0


def test_engine_and_generate_are_timed_on_the_same_greedy_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cua_lab.bench.parts.PROMPTS", 2)
    monkeypatch.setattr("cua_lab.bench.parts.TOKENS", 3)
    pairs = asyncio.run(PARTS["decode"](1))
    assert [pair.peer.name for pair in pairs] == ["generate, one at a time", "generate, batched"]
    assert pairs[0].note == "2 of 2 greedy answers equal"


def test_an_unknown_part_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(LabError, match="no part 'screen'; the parts are screenshot, "):
        comparison.compare(["screen"], rounds=1)


def test_the_page_and_the_json_name_the_machine_and_its_limits(tmp_path: Path) -> None:
    pair = Pair("stitch", "24 turns", Timing("ours", (1.0,)), Timing("peer", (2.0,)))
    machine = {"cpu": "a chip", "cores": 2, "memory_gib": 8.0}
    found = comparison.Comparison(
        (pair,), Limits(100, 10, 0.05, 20), machine, {"torch": "2", "python": "3"}
    )
    page, data = comparison.write_comparison(found, tmp_path / "bench")
    assert "a chip, 2 cores" in page.read_text()
    assert "| stitch | 24 turns |" in page.read_text()
    assert json.loads(data.read_text())["limits"]["gflops"] == 100
