"""What a desktop's programs may know of the machine that they run on.

    folder ──▶ {PATH, HOME, XDG_*, TMPDIR, LANG..., TZ}, and nothing else

A browser reads its language, its time zone and its home from the environment, and every process
of the same user can read that of an X server. Invariant: no variable of the caller gets through
but `PATH` and those that find shared libraries and fonts, so that a page looks the same on every
machine, no key leaves this process, and what a page saves stays in a folder that is removed.
"""

from __future__ import annotations

import os
from pathlib import Path

PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "FONTCONFIG_FILE", "FONTCONFIG_PATH", "XKB_CONFIG_ROOT")
"""Where programs, libraries, fonts and keymaps are: without them nothing starts."""
LOCALE = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "LANGUAGE": "en_US", "TZ": "UTC"}
"""Chromium on Linux takes its language from LANGUAGE and ignores --lang; dates that pages draw
follow TZ (puppeteer/puppeteer#5970, microsoft/playwright#3934)."""
HOMES = {
    "HOME": "home",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_CACHE_HOME": "home/.cache",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_STATE_HOME": "home/.local/state",
    "XDG_RUNTIME_DIR": "run",
    "TMPDIR": "tmp",
}
NO_SESSION = {
    "DBUS_SESSION_BUS_ADDRESS": "disabled:",
    "DBUS_SYSTEM_BUS_ADDRESS": "disabled:",
    "GTK_MODULES": "",
    "NO_AT_BRIDGE": "1",
}
"""No bus, no input methods: nothing outside of the desktop answers."""


def private_environment(folder: Path) -> dict[str, str]:
    """The whole environment of a program that works in `folder`; its homes are made there."""
    homes = {name: folder / place for name, place in HOMES.items()}
    for home in homes.values():
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed | LOCALE | NO_SESSION | {name: str(home) for name, home in homes.items()}
