"""The recording RFB client as a desktop."""

import pytest

from tests.support_wire import Recorder


@pytest.fixture
def desktop() -> Recorder:
    return Recorder()
