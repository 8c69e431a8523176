"""The live screen in a real JupyterLab: its controls reach the desktop and steal no keys."""

import json

import pytest

from tests.browser.test_viewer_notebook import notebook

PATIENCE_MS = 150_000
"""Only ever used up on a busy machine: the kernel imports HUD first."""
CODE = """\
from cua_lab.computer.session import ScreenSession
from cua_lab.computer.config import ToolConfig
from cua_lab.desktop.apps import Todo
from cua_lab.lessons.live_screen import live_screen

config = ToolConfig(coordinate_space="0-1000", pace_ms=0)
bench = await ScreenSession.open(Todo(320, 320, count=2, seed=2), config)
await live_screen(bench, watch=("focus", "text"))"""

FOLLOWING = """\
import asyncio

from cua_lab.computer.session import ScreenSession
from cua_lab.computer.config import ToolConfig
from cua_lab.desktop.apps import Game2048
from cua_lab.lessons.live_screen import live_screen

bench = await ScreenSession.open(Game2048(256, 256, seed=1))


async def somebody_else():
    other = await ScreenSession.on(bench.url, ToolConfig(pace_ms=0))
    while True:
        for key in ("left", "down", "right", "up"):
            await other.call({"action": "press", "keys": [key]})
            await asyncio.sleep(0.2)


playing = asyncio.create_task(somebody_else())
await live_screen(bench, follow=True)"""


CLOSING = "await bench.close()"


@pytest.fixture(scope="module")
def lab(tmp_path_factory, browser):
    from tests.browser.lab import JupyterLab

    folder = tmp_path_factory.mktemp("notebooks")
    (folder / "live.ipynb").write_text(json.dumps(notebook(CODE)))
    (folder / "following.ipynb").write_text(json.dumps(notebook(FOLLOWING)))
    (folder / "closed.ipynb").write_text(json.dumps(notebook(CODE, CLOSING)))
    with JupyterLab(folder, tmp_path_factory.mktemp("lab")) as server:
        yield server


def test_clicks_keys_and_sliders_drive_the_desktop(page, lab, artefacts):
    page.set_default_timeout(PATIENCE_MS)
    lab.open_notebook(page, "live.ipynb")
    lab.run_all(page)
    page.wait_for_selector(".cua-live .ll-screen")
    state, sent = page.locator(".ll-state"), page.locator(".ll-sent")

    box = page.locator(".ll-screen").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 24 / 320, box["y"] + box["height"] * 78 / 320)
    page.wait_for_function(
        "() => document.querySelector('.ll-state').textContent.includes('check:0')"
    )
    assert json.loads(sent.inner_text())["action"] == "click"

    page.get_by_role("slider", name="y").focus()
    page.keyboard.press("Home")
    for _ in range(90):
        page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="click", exact=True).click()
    page.wait_for_function(
        "() => document.querySelector('.ll-state').textContent.includes('field')"
    )

    page.locator('.cua-live input[aria-label="type"]').fill("a b")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.ll-state').textContent.includes('a b')")
    assert '"a b"' in state.inner_text()
    assert lab.cell_count(page) == 1, "no key reached JupyterLab"
    for dark in (False, True):
        lab.change_theme(page, dark)
        page.screenshot(path=artefacts / f"live-{'dark' if dark else 'light'}.png")

    page.locator('.cua-live input[aria-label="press"]').fill("nokey")
    page.keyboard.press("Enter")
    page.wait_for_selector(".ll-error")
    assert "unknown key" in page.locator(".ll-said").inner_text()


def test_whatever_takes_the_focus_keeps_its_keys_from_jupyterlab(page, lab):
    lab.open_notebook(page, "live.ipynb")
    lab.run_all(page)
    page.wait_for_selector(".cua-live .ll-screen", timeout=PATIENCE_MS)
    unprotected = page.evaluate(
        """() => [...document.querySelectorAll('.cua-live *')].filter((node) =>
          node.tabIndex >= 0 && node.dataset.lmSuppressShortcuts !== 'true'
        ).map((node) => node.outerHTML.slice(0, 80))"""
    )
    assert unprotected == []


def test_a_screen_that_follows_moves_by_itself(page, lab, artefacts):
    """Frames reach the browser while no cell runs and nobody touches the widget."""
    page.set_default_timeout(PATIENCE_MS)
    lab.open_notebook(page, "following.ipynb")
    lab.run_all(page)
    page.wait_for_selector(".cua-live .ll-screen")
    first = page.locator(".ll-screen").get_attribute("src")
    page.wait_for_function(
        "() => Number(document.querySelector('.ll-light').textContent.match(/[0-9]+/)) >= 5"
    )
    assert page.locator(".ll-screen").get_attribute("src") != first
    assert page.locator(".ll-light").is_visible()
    assert "screenshot" in page.locator(".ll-sent").inner_text(), "this bench sent nothing else"
    page.screenshot(path=artefacts / "following.png")


def test_after_a_later_cell_closed_the_desktop_a_click_says_what_to_do(page, lab, artefacts):
    """Run All runs it; the click seemed to be ignored."""
    page.set_default_timeout(PATIENCE_MS)
    lab.open_notebook(page, "closed.ipynb")
    lab.run_all(page)
    page.wait_for_selector(".cua-live .ll-screen")
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.content.widgets[1].model.executionCount"
    )
    page.get_by_role("button", name="tab", exact=True).click()
    page.wait_for_selector(".ll-error")
    assert page.locator(".ll-said").inner_text() == "the desktop was closed: run this cell again"
    page.screenshot(path=artefacts / "live-closed.png")
