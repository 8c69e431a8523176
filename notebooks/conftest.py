"""The lessons' kernels get the environment of the stored outputs, also when only they are run."""

from __future__ import annotations

import os

import pytest

from cua_lab.lessons.notebooks import NOTEBOOKS, missing_for, set_environment

set_environment()
os.environ["CUA_LAB_LESSON_RECIPE"] = "smoke"


def pytest_collection_modifyitems(items):
    """A lesson that needs a real browser is skipped where there is none, and says what to do."""
    for item in items:
        if item.path.parent == NOTEBOOKS and (missing := missing_for(item.path)):
            item.add_marker(pytest.mark.skip(reason=missing))
