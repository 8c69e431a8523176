"""One environment for tests and notebook kernels: threads, seeds, no stray keys, no network."""

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from cua_lab.lessons.notebooks import set_environment

set_environment()

settings.register_profile(
    "normal",
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("nightly", parent=settings.get_profile("normal"), max_examples=5000)
settings.register_profile(
    "fuzz",
    parent=settings.get_profile("normal"),
    derandomize=False,
    database=DirectoryBasedExampleDatabase(os.environ.get("FUZZ_CORPUS", ".hypothesis/fuzz")),
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))


LONGEST = ("tests/run/", "tests/browser/", "notebooks/")
"""Begun first by `make test`, so that no process is left with one of them at the end."""
TOGETHER = ("tests/browser/", "tests/lessons/", "tests/miles/", "tests/run/")
"""Rooms whose files share what takes seconds to make: a finished run, a policy, a browser."""


def pytest_addoption(parser):
    parser.addoption(
        "--browser-reruns", type=int, default=0, help="more tries of a test that drives a browser"
    )


def pytest_collection_modifyitems(config, items):
    """Tests that take minutes run when they are asked for: `pytest -m nightly`."""
    if tries := config.getoption("--browser-reruns"):
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.flaky(reruns=tries))
    if hasattr(config, "workerinput"):  # several processes, which must agree on the order
        items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
    if "nightly" not in (config.option.markexpr or ""):
        skip = pytest.mark.skip(reason="takes minutes: run with -m nightly")
        for item in items:
            if item.get_closest_marker("nightly"):
                item.add_marker(skip)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """`make test`: each process plays whole files, or a whole room where its files share much."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return next((room for room in TOGETHER if file.startswith(room)), file)

    return ByFile(config, log)


TRIED: dict[str, dict[str, float]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Let `counted` know whether its test passed."""
    report = yield
    if report.when == "call":
        item.passed = report.passed
    return report


@pytest.fixture
def counted(request):
    """Count what a test tried, by the row of docs/reliability.md that it stands for: numbers of one
    name are added up, but for those that are measured (`slope...`). A test that fails counts
    nothing."""
    told = []
    yield lambda row, **numbers: told.append((row, numbers))
    for row, numbers in told if getattr(request.node, "passed", False) else ():
        add_tried(row, numbers)


def add_tried(row, numbers):
    sums = TRIED.setdefault(row, {})
    for name, number in numbers.items():
        sums[name] = number if name.startswith("slope") else sums.get(name, 0) + number


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """What a process of pytest-xdist counted, when it ends."""
    for row, numbers in getattr(node, "workeroutput", {}).get("tried", {}).items():
        add_tried(row, numbers)


def pytest_sessionfinish(session):
    """`RELIABILITY=FILE` keeps the counts, beside those of other sessions, for
    `python tools/reliability.py`."""
    if hasattr(session.config, "workeroutput"):  # one of several processes: the first one writes
        session.config.workeroutput["tried"] = TRIED
        return
    file = os.environ.get("RELIABILITY")
    if file and TRIED:
        path = Path(file)
        kept = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(kept | TRIED, indent=1, sort_keys=True) + "\n")


@pytest.fixture(scope="session")
def desktops():
    """Two Chromium desktops of 640x600 that all tests share: they boot once, in a second or two."""
    needs_chromium()
    from cua_lab.desktop import background
    from cua_lab.desktop.pool import DesktopPool

    pool = background.wait(DesktopPool(2, 640, 600).start())
    yield pool
    background.wait(pool.close())


def needs_chromium():
    """Skip where Debian's packages are absent."""
    packages = {"chromium": "chromium", "Xtigervnc": "tigervnc-standalone-server"}
    missing = [package for name, package in packages.items() if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: apt-get install {' '.join(missing)}")
