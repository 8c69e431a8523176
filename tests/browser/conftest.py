"""A headless Chromium for every test here; without one they are skipped and say why.

Pictures are kept under the folder that `CUA_LAB_ARTEFACTS` names, or else with pytest's temporary
files.
"""

import os
import shutil
import signal
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session", autouse=True)
def terminated_means_exit():
    """A test run that is told to stop unwinds its fixtures, and with them its servers."""

    def stop(number, _frame):
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="package")
def browser():
    """Ended with the last test here: Playwright's loop would stand in the way of `asyncio.run`."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install -e '.[browser]'"
    )
    if not Path(CHROMIUM).exists():
        pytest.skip("no Chromium: install Debian's package, apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()


@pytest.fixture(params=["light", "dark"])
def theme(request):
    return request.param


@pytest.fixture
def page(browser):
    """A page that fails the test when it complains or asks the network for anything."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("console", lambda m: page.complaints.append(m.text) if m.type == "error" else None)
    yield page
    context.close()


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory):
    """Where pictures go."""
    named = os.environ.get("CUA_LAB_ARTEFACTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("artefacts")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
