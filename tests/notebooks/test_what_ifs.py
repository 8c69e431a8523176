"""A curious reader changes a number, and the lesson still runs to its end.

Each lesson names what is there to be changed in capitals. What a change does to the results is said
by what the cells print, never by a bare assert.
"""

from pathlib import Path

import nbformat
import pytest

from cua_lab.lessons.notebooks import NOTEBOOKS, execute

CHANGES = [
    ("04_stitching", "policy", "SIDE, TURNS, WARM_UP, MEMBERS = 128, 4, 40, 4", line)
    for line in (
        "SIDE, TURNS, WARM_UP, MEMBERS = 160, 4, 40, 4",
        "SIDE, TURNS, WARM_UP, MEMBERS = 128, 8, 40, 4",
        "SIDE, TURNS, WARM_UP, MEMBERS = 128, 4, 15, 4",
        "SIDE, TURNS, WARM_UP, MEMBERS = 128, 4, 40, 6",
    )
]
CHANGES += [
    ("05_warm_up", "policy", "SIDE, BUTTONS, STEPS, LR = 96, 1, 100, 2e-3", line)
    for line in (
        "SIDE, BUTTONS, STEPS, LR = 128, 1, 100, 2e-3",
        "SIDE, BUTTONS, STEPS, LR = 96, 3, 100, 2e-3",
        "SIDE, BUTTONS, STEPS, LR = 96, 1, 40, 1e-2",
    )
]
CHANGES += [
    ("06_grpo", "advantages", "rewards = [0.1, 0.3, 0.3, 0.9]", "rewards = [0.5, 0.5, 0.5]"),
    ("06_grpo", "advantages", "rewards = [0.1, 0.3, 0.3, 0.9]", "rewards = [0.0, 1.0]"),
    ("06_grpo", "twelve", "A = torch.tensor([+1.2, -0.8])", "A = torch.tensor([+1.2, 0.0])"),
    ("06_grpo", "twelve", "LOW, HIGH = 0.2, 0.28", "LOW, HIGH = 0.05, 10.0"),
    ("06_grpo", "hand-warm", "100, 30, 8, 8, 2e-3", "40, 4, 2, 4, 1e-2"),
]


def changed(name: str, cell_id: str, old: str, new: str, folder: Path) -> Path:
    """A copy of a lesson with one line changed."""
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    (cell,) = [cell for cell in notebook.cells if cell.id == cell_id]
    assert cell.source.count(old) == 1, f"{name}, cell {cell_id}, has no {old!r}"
    cell.source = cell.source.replace(old, new)
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


@pytest.mark.parametrize(("name", "cell_id", "old", "new"), CHANGES)
def test_what_is_there_to_be_changed_stands_in_the_lesson(
    name: str, cell_id: str, old: str, new: str, tmp_path: Path
) -> None:
    assert changed(name, cell_id, old, new, tmp_path).exists()


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "cell_id", "old", "new"), CHANGES)
def test_a_changed_lesson_runs_to_its_end(
    name: str, cell_id: str, old: str, new: str, tmp_path: Path
) -> None:
    """In a folder of its own, too: nothing is read from beside the lesson."""
    execute(changed(name, cell_id, old, new, tmp_path))
