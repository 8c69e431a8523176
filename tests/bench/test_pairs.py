"""Ours beside a peer: turns are taken, medians are paired, and the page names the machine."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from cua_lab.bench import (
    comparison,
    rollout_part,
    screen_parts,
    token_parts,
    training_parts,
    trl_losses,
)
from cua_lab.bench.machine_limits import Limits, limits
from cua_lab.bench.pairs import Growth, Measured, Pair, Timing, interleaved, markdown, pairs_of
from cua_lab.bench.parts import ON_REQUEST, PARTS
from cua_lab.bench.token_parts import BATCHED, ONE_AT_A_TIME
from cua_lab.errors import LabError
from cua_lab.play.episode import play

TOP = Limits(gflops=100, gib_per_s=10, loopback_ms=0.05, png_ms=20)


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
    assert "| 3.00x |" in markdown([pair])
    assert pair.record()["rounds"] == 3


def test_limits_are_measured_and_positive() -> None:
    found = asyncio.run(limits(rounds=1))
    assert min(found.gflops, found.gib_per_s, found.loopback_ms, found.png_ms) > 0


@pytest.mark.parametrize("part", ["screenshot", "shim", "stitch", "episode", "viewer"])
def test_a_part_measures_both_sides_of_the_same_work(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen_parts, "TURNS", (1, 2))
    monkeypatch.setattr(token_parts, "TURNS", (6, 24))
    found = asyncio.run(PARTS[part](1, TOP))
    for pair in found.pairs:
        assert pair.part == part
        assert min(pair.ours.ms, pair.peer.ms) > 0
        assert pair.limit
        assert pair.limit_ms is not None
        assert pair.why
    assert [g.sizes for g in found.growth] == {"episode": [(1, 2)], "stitch": [(6, 24)]}.get(
        part, []
    )


def test_engine_and_generate_are_timed_on_the_same_greedy_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_parts, "PROMPTS", 2)
    monkeypatch.setattr(token_parts, "TOKENS", 3)
    found = asyncio.run(PARTS["decode"](1, TOP))
    assert [pair.peer.name for pair in found.pairs] == [ONE_AT_A_TIME, BATCHED]
    assert found.pairs[0].note == "2 of 2 greedy answers equal"


@pytest.mark.parametrize("part", ["sft", "grpo"])
def test_a_step_and_its_peers_start_with_the_same_loss(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a peer with another loss is refused: its time would say nothing."""
    monkeypatch.setattr(training_parts, "ROWS", 8)
    monkeypatch.setattr(trl_losses, "installed", lambda: False)
    found = asyncio.run(PARTS[part](1, TOP))
    (pair,) = found.pairs
    assert pair.peer.name == "transformers' logits"
    assert "agree within" in pair.note
    name = {"sft": "_hf_nll", "grpo": "_hf_surrogate"}[part]
    right = getattr(training_parts, name)
    monkeypatch.setattr(training_parts, name, lambda *at: right(*at) + 1e-3)
    with pytest.raises(LabError, match=r"differ by 0\.001 on the same batch"):
        asyncio.run(PARTS[part](1, TOP))


@pytest.mark.skipif(not trl_losses.installed(), reason="TRL is not installed: the bench extra")
@pytest.mark.parametrize("part", ["sft", "grpo"])
def test_trls_loss_is_ours(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_parts, "ROWS", 8)
    peers = [pair.peer.name for pair in asyncio.run(PARTS[part](1, TOP)).pairs]
    assert peers == ["transformers' logits", f"TRL's {part.upper()} loss"]


def test_a_rollout_is_measured_one_at_a_time_and_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollout_part, "AT_ONCE", 3)
    monkeypatch.setattr(rollout_part, "TOGETHER", 2)
    monkeypatch.setattr(rollout_part, "TURNS", (1, 2))
    monkeypatch.setattr(rollout_part, "EPISODES", (1, 2))
    found = asyncio.run(PARTS["rollout"](1, TOP))
    (pair,) = found.pairs
    assert (pair.ours.name, pair.peer.name) == ("3 at once", "one at a time")
    assert [(growth.what, growth.sizes) for growth in found.growth] == [
        ("turns", (1, 2)),
        ("episodes", (1, 2)),
    ]


def test_an_episode_that_is_cut_short_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    async def one_turn(task, config, *rest, **named):
        return await play(task, config.model_copy(update={"max_steps": 1}), *rest, **named)

    monkeypatch.setattr(rollout_part, "AT_ONCE", 1)
    monkeypatch.setattr(rollout_part, "play", one_turn)
    monkeypatch.setattr(rollout_part, "TURNS", (2,))
    with pytest.raises(LabError, match="the bench's own episode had 1 turns"):
        asyncio.run(PARTS["rollout"](1, TOP))


def test_time_that_grows_with_the_square_has_the_exponent_2() -> None:
    assert Growth("p", "turns", (1, 2, 4), (3.0, 12.0, 48.0)).exponent == pytest.approx(2)
    assert "| p | turns | 1, 2 | 3.00, 6.00 | 1.00 |" in markdown(
        [], [Growth("p", "turns", (1, 2), (3.0, 6.0))]
    )


def test_cpu_time_does_not_count_what_others_do() -> None:
    """On a busy machine a ratio of wall times is a ratio of luck."""

    async def wait() -> None:
        await asyncio.sleep(0.05)

    assert asyncio.run(interleaved({"wait": wait}, rounds=1))["wait"].ms < 50
    assert asyncio.run(interleaved({"wait": wait}, rounds=1, clock="wall"))["wait"].ms >= 50


def test_what_is_measured_on_request_only_is_a_part() -> None:
    assert set(ON_REQUEST) <= set(PARTS)


def test_an_unknown_part_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(LabError, match="no part 'screen'; the parts are screenshot, "):
        comparison.compare(["screen"], rounds=1)


def test_the_page_and_the_json_name_the_machine_and_its_limits(tmp_path: Path) -> None:
    pair = Pair("stitch", "24 turns", Timing("ours", (1.0,)), Timing("peer", (2.0,)))
    machine = {"cpu": "a chip", "cores": 2, "memory_gib": 8.0}
    found = comparison.Comparison(
        (pair,), (), TOP, machine, {"torch": "2", "python": "3"}, load=7.4
    )
    page, data = comparison.write_comparison(found, tmp_path / "bench")
    assert "a chip, 2 cores, 8.0 GiB, one thread, load 7;" in page.read_text()
    assert "| stitch | 24 turns |" in page.read_text()
    assert json.loads(data.read_text())["limits"]["gflops"] == 100


async def _asked(names: list[str], name: str, rounds: int, top: Limits) -> Measured:
    names.append(name)
    return Measured([])


def test_all_names_every_part_and_takes_each_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in PARTS:
        monkeypatch.setitem(PARTS, name, partial(_asked, asked, name))
    comparison.compare(["all"], rounds=1)
    assert asked == list(PARTS)
