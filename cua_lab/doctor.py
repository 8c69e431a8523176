"""`cua-lab doctor`: what works on this machine, and how to fix the rest.

Every look is one `Check`, with the fix where something is amiss.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cua_lab.checks import Check, installed_version
from cua_lab.errors import LabError

MIN_MEMORY_GIB = 4.0
MIN_DISK_GIB = 3.0
HUD_KEY = "HUD_API_KEY"
HUD_KEY_LINE = re.compile(rf"^[ \t]*(export[ \t]+)?{HUD_KEY}[ \t]*=[ \t]*\S", re.MULTILINE)
Boot = Callable[[], float]
BROWSER = "real browser"
LESSONS = ("00", "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12")
NEEDS = {
    "04": {"dashscope"},
    "07": {"chromium", "Xvnc", BROWSER},
    "08": {"chromium", "Xvnc", "miniwob", BROWSER},
}
"""What lessons need beyond the required packages, as the checks here call it."""


def examine(
    home: Path | None = None, folder: Path | None = None, boot: Boot | None = None
) -> list[Check]:
    """Every check, in the order of the report. `home` and `folder` are looked at for stray keys;
    `boot` boots a real browser once and says how many seconds it took."""
    checks = [
        python_version(),
        *packages(),
        cores(),
        memory(),
        disk(folder or Path.cwd()),
        loopback_port(),
        hud_keys(home or Path.home(), folder or Path.cwd()),
        hud_telemetry(),
        *optional_parts(boot),
    ]
    return [*checks, lessons(checks)]


def python_version() -> Check:
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] <= (3, 12):
        return Check("python", "ok", version)
    return Check(
        "python", "fail", version, "use Python 3.11 or 3.12: make PYTHON=/path/to/python3.11 run"
    )


def packages() -> Iterator[Check]:
    """One check for all required packages, naming each that is missing or too old."""
    from packaging.requirements import Requirement

    requirements = [Requirement(r) for r in importlib.metadata.requires("cua-lab") or []]
    required = [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    wrong = [problem for r in required if (problem := _package_problem(r.name, r.specifier))]
    if wrong:
        yield Check("packages", "fail", "; ".join(wrong), "pip install -c constraints.txt -e .")
    else:
        yield Check("packages", "ok", f"all {len(required)} required packages are here")
    if installed_version("hud-python"):
        yield Check(
            "hud-python",
            "warn",
            f"hud-python {installed_version('hud-python')} is installed beside hud; it was renamed",
            "pip uninstall hud-python, then pip install --force-reinstall 'hud>=0.6.21,<0.7'",
        )


def _package_problem(name: str, specifier: object) -> str:
    version = installed_version(name)
    if version is None:
        return f"{name} is missing (needs {specifier or 'any version'})"
    if not specifier.contains(version, prereleases=True):  # type: ignore[attr-defined]
        return f"{name} {version} does not satisfy {specifier}"
    return ""


def cores() -> Check:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = os.environ.get("OMP_NUM_THREADS", "not set")
    saw = f"{count} cores, OMP_NUM_THREADS {threads}"
    if threads != "1":
        return Check(
            "cores",
            "warn",
            saw,
            "export OMP_NUM_THREADS=1: one thread is steady, two are 10x slower on a busy machine"
            " (the lab's own commands set it)",
        )
    return Check("cores", "ok", saw)


def memory() -> Check:
    import psutil

    available = psutil.virtual_memory().available / 2**30
    if available < MIN_MEMORY_GIB:
        return Check(
            "memory",
            "warn",
            f"{available:.1f} GiB available",
            f"the laptop recipe peaks under {MIN_MEMORY_GIB:.0f} GiB: close something,"
            " or start with `cua-lab smoke`",
        )
    return Check("memory", "ok", f"{available:.1f} GiB available")


def disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free / 2**30
    if free < MIN_DISK_GIB:
        return Check(
            "disk", "warn", f"{free:.1f} GiB free", f"free at least {MIN_DISK_GIB:.0f} GiB for runs"
        )
    return Check("disk", "ok", f"{free:.1f} GiB free")


def loopback_port() -> Check:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            return Check("ports", "ok", f"127.0.0.1 gives free ports (tried {_port(server)})")
    except OSError as error:
        return Check(
            "ports",
            "fail",
            f"no port on 127.0.0.1: {error}",
            "the desktop and HUD talk over loopback TCP: allow it in the firewall or the sandbox",
        )


def _port(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def hud_keys(home: Path, folder: Path) -> Check:
    """A stray key makes HUD report to its platform: one episode took 185 s with no network."""
    found = [f"the variable {HUD_KEY}"] if os.environ.get(HUD_KEY) else []
    found += [
        str(path)
        for path in (folder / ".env", home / ".hud" / ".env")
        if path.is_file() and HUD_KEY_LINE.search(_text(path))
    ]
    if found:
        return Check(
            "hud keys",
            "warn",
            "a HUD key is set in " + " and ".join(found),
            "the lab ignores it and reports nowhere; remove it if you did not mean to have it",
        )
    return Check("hud keys", "ok", "none, and none is needed")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def hud_telemetry() -> Check:
    if os.environ.get("HUD_TELEMETRY_ENABLED", "").lower() in {"false", "0"}:
        return Check(
            "hud telemetry",
            "warn",
            "HUD_TELEMETRY_ENABLED=false makes HUD write every screenshot to ~/.hud/spans",
            "unset HUD_TELEMETRY_ENABLED: with no key nothing is sent anyway",
        )
    return Check("hud telemetry", "ok", "nothing is sent without a key")


def optional_parts(boot: Boot | None = None) -> Iterator[Check]:
    yield from real_browser()
    yield browser_boots(boot)
    yield _module("dashscope", "test", "lesson 04 (Qwen's own tokens)")
    yield _module("playwright", "browser", "tests in a real browser")
    yield _module("peft", "sft", "LoRA")
    yield _module("daytona", "scale", "HUD episodes on Daytona")
    yield gpu()


def real_browser() -> Iterator[Check]:
    """What the envs `browser` and `miniwob` and their lesson need."""
    yield _program(
        "chromium", ("chromium", "chromium-browser", "google-chrome"), "the real browser"
    )
    yield _program(
        "Xvnc", ("Xtigervnc", "Xvnc"), "the real browser", package="tigervnc-standalone-server"
    )
    yield _module("miniwob", "browser", "MiniWoB++ tasks")


def browser_boots(boot: Boot | None) -> Check:
    """Boot a desktop once: a browser that is installed need not start."""
    if any(check.status != "ok" for check in real_browser() if check.name in ("chromium", "Xvnc")):
        return Check(BROWSER, "optional", "not installed", "install it: see the lines above")
    if boot is None:
        return Check(BROWSER, "ok", "installed; not tried")
    try:
        seconds = boot()
    except (LabError, OSError) as error:
        said, _, fix = str(error).partition("\nWhat helps: ")
        return Check(BROWSER, "optional", said, fix or "apt-get install --reinstall chromium")
    return Check(BROWSER, "ok", f"boots on its own X server ({seconds:.1f} s)")


def lessons(checks: Sequence[Check]) -> Check:
    """Which lessons can run here, by what the other checks have found."""
    lacking = {check.name for check in checks if check.status in ("fail", "optional")}
    core = {check.name for check in checks if check.status == "fail"}
    waiting = {
        number: wants
        for number in LESSONS
        if (wants := sorted(core | lacking & NEEDS.get(number, set())))
    }
    ready = [number for number in LESSONS if number not in waiting]
    if not waiting:
        return Check("lessons", "ok", f"ready: {', '.join(ready)}")
    return Check(
        "lessons",
        "optional",
        f"ready: {', '.join(ready) or 'none'}; "
        + "; ".join(f"{number} needs {', '.join(wants)}" for number, wants in waiting.items()),
        "see the lines of what they need",
    )


def _program(name: str, candidates: tuple[str, ...], use: str, package: str = "") -> Check:
    path = next((p for c in candidates if (p := shutil.which(c))), None)
    if path:
        return Check(name, "ok", path)
    package = package or name
    return Check(name, "optional", f"absent; {use} needs it", f"Debian: apt-get install {package}")


def _module(name: str, extra: str, use: str) -> Check:
    if importlib.util.find_spec(name):
        return Check(name, "ok", installed_version(name) or "installed")
    return Check(name, "optional", f"absent; {use} needs it", f"pip install -e '.[{extra}]'")


def gpu() -> Check:
    import torch

    if torch.cuda.is_available():
        return Check("gpu", "ok", torch.cuda.get_device_name())
    return Check(
        "gpu",
        "optional",
        "none; every lesson runs on the CPU",
        "for models of billions of weights use a GPU and `cua-lab serve --engine sglang`",
    )
