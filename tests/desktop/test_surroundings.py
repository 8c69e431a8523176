"""A desktop's programs see a minimal environment, and one that does not start says why."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from cua_lab.desktop import chromium, guard
from cua_lab.desktop.cdp import BrowserError
from cua_lab.desktop.chromium import ChromiumDesktop
from cua_lab.desktop.guard import LONGEST_PLACE, Guard
from cua_lab.desktop.start_failures import not_started, telling
from cua_lab.errors import LabError
from tests.conftest import needs_chromium

HOST = {
    "HUD_API_KEY": "planted-secret",
    "AWS_SECRET_ACCESS_KEY": "planted-secret",
    "DAYTONA_API_KEY": "planted-secret",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "en_GB.UTF-8",
    "LC_TIME": "de_DE.UTF-8",
    "LANGUAGE": "de",
    "TZ": "Asia/Tokyo",
    "XDG_DOWNLOAD_DIR": "/somewhere",
    "XDG_CONFIG_DIRS": "/somewhere",
    "XAUTHORITY": "/somewhere/.Xauthority",
    "http_proxy": "http://proxy.example:3128",
    "LD_PRELOAD": "",
    "PULSE_SERVER": "somewhere",
    "GTK_IM_MODULE": "ibus",
    "DESKTOP_SESSION": "gnome",
}


@pytest.fixture
def host(monkeypatch):
    for name, value in HOST.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("user", "flags"), [(0, ("--no-sandbox",)), (1000, ())])
def test_the_sandbox_is_off_for_root_alone(monkeypatch, user: int, flags: tuple[str, ...]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert chromium._sandbox() == flags
    assert "--no-sandbox" not in chromium.FLAGS


async def environment_of_a_child() -> tuple[dict[str, str], Path]:
    opened = await Guard.open()
    try:
        child = await opened.start("env", "-0", log="log", stdout=asyncio.subprocess.PIPE)
        out = (await child.communicate())[0].decode()
    finally:
        await opened.close()
    return dict(line.split("=", 1) for line in out.split("\0") if line), opened.folder


def test_a_child_sees_none_of_our_variables_but_where_programs_are(host) -> None:
    """Keys were in the X server's environment, and the host's language and time zone in the
    browser's: a date on a page was another one (puppeteer/puppeteer#5970)."""
    found, folder = asyncio.run(environment_of_a_child())
    assert "planted-secret" not in str(found)
    assert {name for name in HOST if found.get(name) == HOST[name]} == set()
    assert (found["LANGUAGE"], found["LC_ALL"], found["TZ"]) == ("en_US", "C.UTF-8", "UTC")
    assert found["PATH"] == os.environ["PATH"]
    homes = [name for name in found if name in ("HOME", "TMPDIR") or name.startswith("XDG_")]
    assert len(homes) == 7
    assert all(Path(found[name]).is_relative_to(folder) for name in homes)


@pytest.mark.browser
def test_a_page_speaks_english_and_lives_in_utc_wherever_it_is_shown(host) -> None:
    needs_chromium()

    async def scenario():
        async with ChromiumDesktop(320, 240) as desktop:
            said = await desktop.evaluate(
                "[navigator.languages, new Date(0).toLocaleString(), (1234.5).toLocaleString(),"
                " Intl.DateTimeFormat().resolvedOptions().timeZone]"
            )
            return said, [Path(f"/proc/{pid}/environ").read_text() for pid in desktop.pids]

    said, environments = asyncio.run(scenario())
    assert said == [["en-US", "en"], "1/1/1970, 12:00:00 AM", "1,234.5", "UTC"]
    assert "planted-secret" not in str(environments)


@pytest.mark.browser
def test_a_desktop_boots_where_the_folder_for_temporary_files_has_a_long_name(
    tmp_path, monkeypatch
) -> None:
    """A socket's name has 107 bytes: from 34 of TMPDIR on the browser ended without a word."""
    needs_chromium()
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))

    async def scenario():
        async with ChromiumDesktop(160, 160) as desktop:
            return desktop._guard.folder

    assert len(str(asyncio.run(scenario()).parent)) <= LONGEST_PLACE


def test_where_no_folder_can_be_made_the_places_are_named(monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "x" * 60)

    def refuse(**options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(guard.tempfile, "mkdtemp", refuse)
    with pytest.raises(LabError, match=r"longer than 24 bytes.*/var/tmp \(Permission denied\)"):
        asyncio.run(Guard.open())


@pytest.mark.browser
@pytest.mark.parametrize(
    ("script", "words", "help_"),
    [
        (
            "echo '[7:7:0101/000000.0:FATAL:zygote_host.cc(128)] No usable sandbox!' >&2; exit 1",
            "No usable sandbox!",
            "user namespaces",
        ),
        (
            "echo 'chromium: error while loading shared libraries: libnss3.so' >&2; exit 127",
            "libnss3.so",
            "apt-get",
        ),
        ("exit 3", "the X server's last words", "doctor"),
    ],
)
def test_a_browser_that_ends_at_once_is_quoted(tmp_path, monkeypatch, script, words, help_) -> None:
    """`the browser ended before it answered` was all (evener#1141)."""
    needs_chromium()
    program = tmp_path / "chromium"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(chromium, "program", lambda: str(program))

    async def scenario():
        async with ChromiumDesktop(160, 160):
            pass

    with pytest.raises(BrowserError) as caught:
        asyncio.run(scenario())
    assert isinstance(caught.value, LabError)
    assert words in str(caught.value)
    assert help_ in str(caught.value)


def test_the_fatal_line_is_what_tells() -> None:
    log = "\n".join(["a warning"] * 5 + ["[1:1:0:FATAL:x.cc(1)] full", "a stack"] + ["#0"] * 30)
    assert telling(log) == "[1:1:0:FATAL:x.cc(1)] full"
    assert telling("one\n\ntwo\n") == "one\ntwo"


def test_a_desktop_that_left_no_words_says_so() -> None:
    error = not_started(TimeoutError(), "", "")
    assert "did not answer in time; it left no words" in str(error)
