"""The safety lesson's question in a real JupyterLab: a person's click reaches the gate."""

import json

import pytest

from cua_lab.lessons.notebooks import NOTEBOOKS
from tests.browser.test_viewer_notebook import notebook

PATIENCE_MS = 150_000
"""Only ever used up on a busy machine: the kernel imports HUD first."""
CELLS = ("setup", "bench", "context", "alone", "ask", "answered")
"""Of the lesson: those that `ask` stands on, and what reads the record afterwards."""
RUN_LAST = """async () => {
  const app = window.jupyterapp, { content } = app.shell.currentWidget;
  content.activeCellIndex = content.widgets.length - 1;
  await app.commands.execute('notebook:run-cell');
}"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory, browser):
    from tests.browser.lab import JupyterLab

    lesson = json.loads((NOTEBOOKS / "07_safety.ipynb").read_text(encoding="utf-8"))
    sources = {cell["id"]: "".join(cell["source"]) for cell in lesson["cells"]}
    assert "LIVE = False" in sources["ask"], "as stored, nobody is there"
    sources["ask"] = sources["ask"].replace("LIVE = False", "LIVE = True")
    folder = tmp_path_factory.mktemp("notebooks")
    (folder / "asked.ipynb").write_text(json.dumps(notebook(*(sources[id] for id in CELLS))))
    with JupyterLab(folder, tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.mark.parametrize(("button", "outcome"), [("approve", "approved"), ("reject", "rejected")])
def test_the_lesson_s_question_is_answered_by_a_click(page, lab, artefacts, button, outcome):
    page.set_default_timeout(PATIENCE_MS)
    lab.open_notebook(page, "asked.ipynb")
    lab.run_all(page)
    page.wait_for_selector(".cua-confirm .cf-ask:not([hidden])")
    assert "Delete all" in page.locator(".cf-reason").inner_text()
    assert page.locator(".cf-log li").count() == 0
    page.screenshot(path=artefacts / f"asked-{button}.png")
    page.locator(f".cua-confirm button[data-key={button[0]}]").click()
    page.wait_for_selector(".cf-log li")
    assert outcome in page.locator(".cf-log").inner_text()
    assert page.locator(".cf-ask").is_hidden()

    page.evaluate(RUN_LAST)
    page.wait_for_selector(f"text={outcome}: delete, high risk")
    page.screenshot(path=artefacts / f"answered-{button}.png")
