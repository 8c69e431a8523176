"""The mask viewer in a real JupyterLab: run, drag, type, save, reopen."""

import json

import pytest

from cua_lab.lessons.notebooks import WIDGET_VIEW

CODE = """\
from cua_lab.viz import mask_viewer
from tests.viz.episodes import WordCodec, episode, frame

codec = WordCodec()
mask_viewer(episode(3, codec=codec), codec, images=[frame(i) for i in range(3)])"""
ROWS = "() => [...document.querySelectorAll('.cl-row')].filter((r) => r.offsetParent).length"


def notebook(*sources):
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{i}",
            "metadata": {},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for i, source in enumerate(sources)
    ]
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture(scope="module")
def lab(tmp_path_factory, browser):
    from tests.browser.lab import JupyterLab

    folder = tmp_path_factory.mktemp("notebooks")
    (folder / "viewer.ipynb").write_text(json.dumps(notebook(CODE)))
    with JupyterLab(folder, tmp_path_factory.mktemp("lab")) as server:
        yield server


def test_the_viewer_runs_in_a_notebook_and_its_static_copy_survives(page, lab, artefacts):
    lab.open_notebook(page, "viewer.ipynb")
    lab.run_all(page)
    page.wait_for_selector(".cua-viewer .cl-t", timeout=60_000)

    rows = page.evaluate(ROWS)
    page.focus(".cua-viewer input[type=range]")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    assert page.evaluate(ROWS) < rows
    page.keyboard.press("End")

    cells = lab.cell_count(page)
    for target in (".cl-body", "input[type=range]", "input[type=search]", ".cl-chip", "button"):
        page.locator(f".cua-viewer {target}").first.focus()
        page.keyboard.press("a")
        page.keyboard.press("b")
        page.keyboard.press("m")
    assert lab.cell_count(page) == cells == 1
    assert page.locator(".cua-viewer").count() == 1

    for dark in (False, True):
        lab.change_theme(page, dark)
        background = page.evaluate(
            "getComputedStyle(document.querySelector('.cua-viewer')).backgroundColor"
        )
        assert background == ("rgb(17, 17, 17)" if dark else "rgb(255, 255, 255)")
        page.screenshot(path=artefacts / f"lab-{'dark' if dark else 'light'}.png")

    lab.save(page)
    _strip_views(lab.notebooks / "viewer.ipynb")
    lab.open_notebook(page, "viewer.ipynb")
    page.wait_for_selector("text=static copy")
    assert page.get_by_text("<tool_call>").first.is_visible()
    assert page.get_by_text("model not found").count() == 0
    page.screenshot(path=artefacts / "lab-reopened.png")


def _strip_views(path):
    """As stored outputs are: a widget view without its model shows only an error."""
    stored = json.loads(path.read_text())
    outputs = [output for cell in stored["cells"] for output in cell.get("outputs", [])]
    assert any("text/html" in output.get("data", {}) for output in outputs)
    for output in outputs:
        output.get("data", {}).pop(WIDGET_VIEW, None)
    stored["metadata"].pop("widgets", None)
    path.with_suffix(".tmp").write_text(json.dumps(stored))
    path.with_suffix(".tmp").replace(path)
