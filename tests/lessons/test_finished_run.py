"""A packed run is a run's folder like any other, and small; a lesson always finds one."""

import json
from pathlib import Path

import pytest

from cua_lab.errors import LabError
from cua_lab.lessons import finished_run as packed
from cua_lab.lessons.finished_run.pack import MOST_BYTES, PICTURED, pack
from cua_lab.lessons.outcome import outcome_bars, pairs_of
from cua_lab.lessons.reading_plot import by_misread, erosion_figure, misread_cells
from cua_lab.records import EpisodeRow, TurnRow
from cua_lab.viz import episode_frames, read_run

NAMES = packed.packed_runs()


def test_the_package_has_the_runs_of_the_lessons() -> None:
    assert set(NAMES) >= {"laptop", "2048-score", "no_kl", "key_only"}


@pytest.mark.parametrize("name", NAMES)
def test_a_packed_run_is_read_like_any_other_and_is_small(name: str) -> None:
    run = read_run(packed.FOLDER / name)
    assert run.summary is not None
    for task, summary in run.summary.tasks.items():
        assert outcome_bars(summary)
        assert run.grpo(task), f"{task} has its curve"
        assert all(episode_frames(run, e) for pair in pairs_of(run, task) for e in pair)
        assert len(pairs_of(run, task)) <= PICTURED
    size = sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
    assert size < MOST_BYTES


def test_packing_a_packed_run_again_changes_nothing(tmp_path: Path) -> None:
    """What is kept is kept whole."""
    source = packed.FOLDER / "laptop"
    pack(source, tmp_path / "again")
    assert {p.name for p in (tmp_path / "again").iterdir()} == {p.name for p in source.iterdir()}
    for name in ("metrics.jsonl", "episodes.jsonl", "summary.json"):
        assert (tmp_path / "again" / name).read_bytes() == (source / name).read_bytes()


def test_numbers_of_a_packed_run_are_those_of_the_run(tmp_path: Path) -> None:
    source = _a_run(tmp_path / "run")
    pack(source, tmp_path / "packed")
    whole, slim = read_run(source), read_run(tmp_path / "packed")
    assert slim.steps == whole.steps
    assert slim.summary == whole.summary
    assert [(e.phase, e.step, e.reward) for e in slim.episodes] == [
        ("eval_before", None, 0.0),
        ("grpo", 1, 0.25),
        ("grpo", 2, None),
        ("grpo", 3, 1.0),
        ("ablation_blank", None, 0.0),
    ]
    first, *others = slim.episodes
    assert first.turns[0].action == {"action": "press", "keys": ["left"]}
    assert first.turns[0].valid is False
    assert not any(e.turns for e in others), "what was said in training is left out"


def test_a_run_that_has_not_ended_is_not_packed(tmp_path: Path) -> None:
    source = _a_run(tmp_path / "run")
    (source / "summary.json").unlink()
    with pytest.raises(LabError, match="pack a run that has ended"):
        pack(source, tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


def test_ones_own_run_is_read_where_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = _a_run(tmp_path / "laptop")
    monkeypatch.delenv(packed.ONLY_PACKED)
    assert packed.finished_run("laptop", runs=tmp_path).path == own
    assert packed.where(packed.finished_run("laptop", runs=tmp_path)).startswith("your own run")
    (own / "summary.json").unlink()  # it goes on, or was stopped
    assert packed.finished_run("laptop", runs=tmp_path).path == packed.FOLDER / "laptop"


def test_stored_outputs_never_depend_on_a_run_of_this_machine(tmp_path: Path) -> None:
    _a_run(tmp_path / "laptop")
    assert packed.finished_run("laptop", runs=tmp_path).path == packed.FOLDER / "laptop"


def test_a_run_that_nobody_has_is_refused_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="cua-lab run --recipe nope"):
        packed.finished_run("nope", runs=tmp_path)


def test_misread_cells_are_counted_over_turns_and_missing_is_not_zero() -> None:
    right, wrong = TurnRow(thought="12/34 row", reading="12/34"), TurnRow("", reading="12/34")
    wrong = TurnRow(thought="12/30", reading="12/34")
    played = EpisodeRow(task="t", phase="eval_after", success=True, turns=(right, wrong))
    silent = EpisodeRow(task="t", phase="eval_after", success=True, turns=(TurnRow(),))
    assert misread_cells(played) == 1
    assert misread_cells(silent) is None
    turn = TurnRow(thought="[redacted] 13 row", reading="2550/1130/3000/0100")
    assert misread_cells(EpisodeRow(task="t", phase="eval_after", turns=(turn,))) is None
    assert by_misread([played, played, silent]) == {1: (2, 1.0)}


def test_the_erosion_is_drawn_from_the_runs_own_steps() -> None:
    steps = read_run(packed.FOLDER / "laptop").grpo("2048-near-win")
    figure = erosion_figure({"think": steps})
    read, success = figure.axes
    assert list(read.lines[0].get_ydata()) == [step.screens_read for step in steps]
    assert list(success.lines[0].get_ydata()) == [step.success for step in steps]
    assert "think" in (figure.alt or "")


def _a_run(folder: Path) -> Path:
    """Three steps of one task, and an episode of each kind."""
    folder.mkdir(parents=True)
    place = {"task": "t", "stage": "s"}
    steps = [place | {"phase": "grpo", "step": k, "reward_mean": k / 4} for k in (1, 2, 3)]
    turn = {"action": {"action": "press", "keys": ["left"]}, "valid": False, "text": "long"}
    episodes = [
        place | {"phase": "eval_before", "episode": "e", "reward": 0.0, "turns": [turn]},
        place | {"phase": "grpo", "step": 1, "reward": 0.25, "turns": [turn]},
        place | {"phase": "grpo", "step": 2, "reward": None, "status": "failed"},
        place | {"phase": "grpo", "step": 3, "reward": 1.0, "turns": [turn]},
        place | {"phase": "ablation_blank", "reward": 0.0, "turns": [turn]},
    ]
    for name, records in (("metrics", steps), ("episodes", episodes)):
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(text)
    (folder / "summary.json").write_text('{"format": 2, "tasks": {"t": {"reward_after": 0.5}}}')
    return folder
