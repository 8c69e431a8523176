"""Every lesson keeps the form that makes it readable, checkable and true.

That each cell still gives its stored output is nbval's part: it collects `notebooks/` in the same
run of pytest. The exercises follow one convention: a code cell `exercise-N` holds the reader's
answer (`...` until then), `exercise-N-check` says "not answered yet" or "right", and a markdown
cell `exercise-N-solution` hides one Python block in `<details>`.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import re
import socket
from pathlib import Path

import nbformat
import pytest

from cua_lab.lessons.notebooks import KERNELSPEC, LANGUAGE_INFO, NOTEBOOKS, WIDGET_VIEW, missing_for

LESSONS = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
CODE_LINES = 16
MAX_BYTES = 1_500_000
PRIVATE = re.compile(
    r"(?<![\w.:/])/(home|root|work|tmp|usr|var|opt|Users|private)/|127\.0\.0\.1|localhost"
)
SOLUTION = re.compile(r"<details>.*?```python\n(.*?)```.*?</details>", re.DOTALL)
pytestmark = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def headings(path: Path, marks: str) -> list[str]:
    prose = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    bare = re.sub(r"```.*?```", "", prose, flags=re.DOTALL)
    return re.findall(rf"^{marks} (.+)$", bare, flags=re.MULTILINE)


def texts(value: object) -> list[str]:
    """Every string of an output but pictures."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    if isinstance(value, dict):
        kept = [item for key, item in value.items() if not key.startswith("image/")]
        return [text for item in kept for text in texts(item)]
    return []


def test_every_code_cell_was_run_and_has_an_id_of_its_own(path: Path) -> None:
    """nbval runs a cell without a count but compares nothing, and nbformat only warns of ids."""
    counts = [cell.execution_count for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1)), "stored outputs come from one clean run"
    ids = [cell.get("id") for cell in read(path).cells]
    assert all(ids)
    assert len(set(ids)) == len(ids)


def test_no_widget_and_no_private_metadata_is_stored(path: Path) -> None:
    """A reopened view without its model shows only "model not found" (ipywidgets#3823)."""
    assert dict(read(path).metadata) == {"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO}
    for cell in code_cells(path):
        assert "execution" not in cell.metadata
        assert not any(WIDGET_VIEW in output.get("data", {}) for output in cell.outputs)


def test_no_output_names_a_path_or_a_host_of_one_machine(path: Path) -> None:
    for cell in code_cells(path):
        for text in texts(cell.outputs):
            assert not PRIVATE.search(text), f"cell {cell.id}: {text[:300]}"
            assert str(Path.home()) not in text
            assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)


def test_no_error_is_stored_but_where_the_cell_announces_it(path: Path) -> None:
    for cell in code_cells(path):
        raised = any(output.output_type == "error" for output in cell.outputs)
        assert not raised or "raises-exception" in cell.metadata.get("tags", []), cell.id


def test_the_outline_is_one_title_and_numbered_sections(path: Path) -> None:
    assert len(headings(path, "#")) == 1
    numbers = [re.match(r"(\d+)\. \S", heading) for heading in headings(path, "##")]
    assert all(numbers), headings(path, "##")
    assert [int(m.group(1)) for m in numbers if m] == list(range(1, len(numbers) + 1))


def test_a_cell_of_code_fits_the_eye(path: Path) -> None:
    for cell in code_cells(path):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert len(lines) <= CODE_LINES, f"cell {cell.id} has {len(lines)} lines"


def test_a_lesson_stays_small(path: Path) -> None:
    assert path.stat().st_size < MAX_BYTES


def test_three_exercises_are_checked_and_solved(path: Path) -> None:
    cells = {cell.id: cell for cell in read(path).cells}
    for number in (1, 2, 3):
        name = f"exercise-{number}"
        assert cells[name].cell_type == cells[f"{name}-check"].cell_type == "code"
        said = "".join(texts(cells[f"{name}-check"].outputs))
        assert "not answered yet" in said, "an exercise is stored unanswered"
        assert SOLUTION.search(cells[f"{name}-solution"].source)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_each_hidden_solution_passes_the_check_of_its_exercise(path: Path, number: int) -> None:
    """In one namespace with the cells tagged `setup`, so that the check is not what is wrong."""
    if missing := missing_for(path):
        pytest.skip(missing)
    cells = {cell.id: cell for cell in read(path).cells}
    if number > 3 and f"exercise-{number}" not in cells:
        pytest.skip("three are asked for")
    hidden = SOLUTION.search(cells[f"exercise-{number}-solution"].source)
    assert hidden is not None
    setup = [cell.source for cell in code_cells(path) if "setup" in cell.metadata.get("tags", [])]
    check = cells[f"exercise-{number}-check"].source
    with contextlib.chdir(NOTEBOOKS):
        said = asyncio.run(run([*setup, hidden.group(1), check]))
    assert "not answered yet" not in said
    assert "right" in said


async def run(sources: list[str]) -> str:
    """Run cells one after the other, top-level `await` included; what they printed."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for source in sources:
            code = compile(source, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, namespace)
            if inspect.isawaitable(result):
                await result
    return printed.getvalue()
