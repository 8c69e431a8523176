"""What one episode and one update pass through is counted, not guessed."""

from pathlib import Path
from types import ModuleType

import pytest

from tools.trace_path import Trace, episode_and_update, report, traced


def loaded(path: Path, text: str) -> ModuleType:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    module = ModuleType(path.stem)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def test_files_functions_and_changes_of_room_are_counted(tmp_path: Path) -> None:
    package = tmp_path / "house"
    down = loaded(package / "ground.py", "def dig(n):\n    return n + 1\n")
    up = loaded(
        package / "hall/table.py",
        "def lay(dig):\n    return rest(sum(dig(n) for n in (1, 2)))\ndef rest(n):\n    return n\n",
    )
    with traced(package) as trace:
        up.lay(down.dig)
    assert trace.files == {"ground.py", "hall/table.py"}
    names = {name for (_, name), _ in trace.functions}
    assert names == {"lay", "rest", "lay.<locals>.<genexpr>", "dig"}
    rooms = [(before[0], here[0]) for before, here in trace.changes]
    assert rooms == [
        ("hall/table.py", "ground.py"),
        ("ground.py", "hall/table.py"),
        ("hall/table.py", "ground.py"),
        ("ground.py", "hall/table.py"),
    ]
    assert report(trace).startswith("2 files, 4 functions, 4 room changes")


def test_what_is_not_the_packages_is_not_counted(tmp_path: Path) -> None:
    with traced(tmp_path / "house") as trace:
        sorted([2, 1], key=lambda n: n)
    assert trace == Trace()


@pytest.fixture(scope="module")
def trace() -> Trace:
    return episode_and_update()


def test_the_path_goes_through_an_episode_its_stitching_and_an_update(trace: Trace) -> None:
    names = {name for (_, name), _ in trace.functions}
    assert {"play", "stitch", "policy_loss", "group_advantages"} <= names


def test_the_path_is_no_longer_than_it_was(trace: Trace) -> None:
    """61 files and 96 changes of room when it was first counted; borders that say everything and
    check what comes back added 13 files; finer rooms made more changes of room. Devices and
    several processes (learner, precision, ranks, shares), the text forward written out and what
    is waited for added 10 files more; scaled screenshots and the learning rate have files of
        their own."""
    assert len(trace.files) <= 84
    assert len(trace.changes) <= 264
