"""One environment for tests and notebook kernels: threads, seeds, no stray keys, no network."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

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
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))


def pytest_collection_modifyitems(config, items):
    """Tests that take minutes run when they are asked for: `pytest -m nightly`."""
    if "nightly" not in (config.option.markexpr or ""):
        skip = pytest.mark.skip(reason="takes minutes: run with -m nightly")
        for item in items:
            if item.get_closest_marker("nightly"):
                item.add_marker(skip)


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
