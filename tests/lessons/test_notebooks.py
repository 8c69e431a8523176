"""Stored outputs are normalised so that two honest runs store the same bytes."""

import re
from pathlib import Path

import nbformat
import pytest

from cua_lab.lessons import notebooks

RULES = [(re.compile("0x[0-9a-f]{6,16}"), "0xADDRESS")]


def a_notebook(text: str) -> nbformat.NotebookNode:
    data = {"text/plain": text, notebooks.WIDGET_VIEW: {"model_id": "1"}, "image/png": "AAAA"}
    output = nbformat.v4.new_output("display_data", data=data)
    cell = nbformat.v4.new_code_cell("show()", outputs=[output], execution_count=1, id="cell-1")
    cell.metadata["execution"] = {"iopub.status.busy": "2026-01-01"}
    return nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": {"state": {}}})


def test_widget_views_widget_state_and_timing_are_never_stored() -> None:
    """A reopened notebook with a view and no state shows "model not found" (ipywidgets#3823)."""
    notebook = notebooks.normalise(a_notebook("<Viewer at 0xdeadbeef>"), RULES)
    (cell,) = notebook.cells
    assert notebook.metadata.keys() == {"kernelspec", "language_info"}
    assert "execution" not in cell.metadata
    assert cell.outputs[0]["data"] == {"text/plain": "<Viewer at 0xADDRESS>", "image/png": "AAAA"}


def test_pictures_are_not_compared_but_the_text_beside_them_is() -> None:
    first, second = a_notebook("reward 0.5"), a_notebook("reward 0.5")
    second.cells[0].outputs[0]["data"]["image/png"] = "BBBB"
    assert notebooks.comparable(first) == notebooks.comparable(second)
    second.cells[0].outputs[0]["data"]["text/plain"] = "reward 0.6"
    assert notebooks.comparable(first) != notebooks.comparable(second)


def test_the_sanitise_file_is_read_as_nbval_reads_it() -> None:
    rules = notebooks.sanitise_rules()
    text = "<Env at 0x7f12345678> 123e4567-e89b-12d3-a456-426614174000"
    assert notebooks.sanitise(text, rules) == "<Env at 0xADDRESS> UUID"


def test_an_unknown_lesson_is_refused_with_the_known_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["notebooks", "check", "99_none"])
    with pytest.raises(SystemExit):
        notebooks.main()
    assert "no lesson named 99_none" in capsys.readouterr().err


def test_a_lesson_whose_browser_is_absent_is_left_out_with_the_fix(monkeypatch, capsys) -> None:
    """A machine without Debian's packages checks the other lessons all the same."""
    monkeypatch.setattr("cua_lab.doctor.shutil.which", lambda name: None)
    monkeypatch.setattr("sys.argv", ["notebooks", "check", "08_real_browser"])
    assert notebooks.main() == 0
    said = capsys.readouterr().out
    assert "08_real_browser.ipynb is left out: chromium is absent" in said
    assert "apt-get install tigervnc-standalone-server" in said
    assert notebooks.missing_for(notebooks.NOTEBOOKS / "00_start_here.ipynb") == ""


def test_a_cell_that_gives_something_else_is_named() -> None:
    stored, fresh = a_notebook("reward 0.5"), a_notebook("reward 0.6")
    first, *diff = notebooks.differences("00_start.ipynb", stored, fresh)
    assert first.startswith("00_start.ipynb, cell 0 (cell-1, 'show()') gives something else")
    assert any("0.6" in line for line in diff)
    assert list(notebooks.differences("00_start.ipynb", stored, stored)) == []


def test_a_cell_that_is_gone_is_named() -> None:
    stored, fresh = a_notebook("reward 0.5"), a_notebook("reward 0.5")
    fresh.cells = []
    assert next(notebooks.differences("a.ipynb", stored, fresh)).startswith("a.ipynb, cell 0 ")


def test_a_cell_that_fails_is_named_with_its_error(tmp_path: Path, capsys) -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell("x = 1", id="fine"),
            nbformat.v4.new_code_cell("y = x\nraise ValueError('too small')", id="broken"),
        ]
    )
    path = tmp_path / "00_broken.ipynb"
    nbformat.write(notebook, path)
    assert not notebooks.check(path)
    said = capsys.readouterr().out
    assert "00_broken.ipynb, cell 1 (broken, 'y = x') failed: ValueError: too small" in said
