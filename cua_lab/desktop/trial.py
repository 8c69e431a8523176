"""One boot of a desktop, to see whether it does: a browser that is installed need not start."""

from __future__ import annotations

import time

from cua_lab.desktop import background
from cua_lab.desktop.chromium import ChromiumDesktop

SIZE = (160, 160)


def boot_once() -> float:
    """Seconds until a desktop has drawn its first page and got a key; `LabError` if it does not."""
    return background.wait(_boot_once())


async def _boot_once() -> float:
    began = time.monotonic()
    async with ChromiumDesktop(*SIZE):
        return time.monotonic() - began
