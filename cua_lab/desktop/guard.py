"""Nothing stays behind: what a desktop started is ended, and what it wrote removed.

A guard is a shell that reads what to clean up and does so when its input ends, that is when it is
told to or when this process dies, by whatever signal. Each child asks the kernel for its own end as
well (`setpriv --pdeathsig`), which covers the moment between its start and its registration.
Invariant: a child is started through `Guard.start`, so it is the leader of a process group that the
guard knows.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cua_lab.desktop.surroundings import private_environment
from cua_lab.errors import LabError
from cua_lab.waiting import waiting

LONGEST_PLACE = 24
"""Bytes of the name of a folder for temporary files. Below it Chromium binds a socket, whose name
may have 107: 24, 25 of the desktop's folder and 49 of Chromium's own leave 9."""

# The folder's name is $1. Killed processes may still be writing for a moment: remove until gone.
# A display's number is free as soon as its server has ended, and the next server that takes it has
# files of the same names: so they go while ours still runs, unless they are another's by now, as
# the lock says by its process and /proc/net/unix by the number of the socket that listens.
SCRIPT = r"""
trap '' INT TERM HUP
groups= displays=
while read -r kind what; do
  case $kind in
    group) groups="$groups $what";;
    display) displays="$displays $what";;
  esac
done
for display in $displays; do
  IFS=: read -r number pid inode <<END
$display
END
  lock=/tmp/.X$number-lock socket=/tmp/.X11-unix/X$number
  [ -e "$lock" ] && read -r holder <"$lock" && [ "$holder" -eq "$pid" ] && rm -f -- "$lock"
  others=$(grep -c " 00010000 .* $socket\$" /proc/net/unix 2>/dev/null)
  ours=$(grep -c " $inode $socket\$" /proc/net/unix 2>/dev/null)
  { [ "${others:-0}" -eq 0 ] || [ "${ours:-0}" -gt 0 ]; } && rm -f -- "$socket"
done
for group in $groups; do kill -KILL "-$group" 2>/dev/null; done
tries=0
while rm -rf -- "$1" 2>/dev/null; [ -e "$1" ] && [ $tries -lt 100 ]; do
  tries=$((tries + 1)); sleep 0.05
done
"""
X_SOCKET = "/tmp/.X11-unix/X{}"
NO_SOCKET = "none"


class Guard:
    """A private folder and the processes that work in it."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self.folder = folder
        self._process = process
        self._children: list[asyncio.subprocess.Process] = []

    @classmethod
    async def open(cls) -> Guard:
        """Start a guard; its folder is new and empty."""
        folder = _new_folder()
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", SCRIPT, "guard", str(folder),
                stdin=asyncio.subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return cls(folder, process)

    async def start(
        self, *command: str, env: Mapping[str, str] | None = None, log: str, **options: Any
    ) -> asyncio.subprocess.Process:
        """Start a child whose errors go to the file `log` of the folder. It sees `env` and the
        private environment of the folder, nothing of this process's own."""
        with open(self.folder / log, "ab") as errors:
            pipes: dict[str, Any] = {"stdin": asyncio.subprocess.DEVNULL, "stdout": errors}
            child = await asyncio.create_subprocess_exec(
                *_dies_with_us(),
                *command,
                env=private_environment(self.folder) | dict(env or {}),
                cwd=self.folder,
                stderr=errors,
                start_new_session=True,
                **(pipes | options),
            )
        self._children.append(child)
        self._tell(f"group {child.pid}")
        return child

    def removes_display(self, number: int, pid: int) -> None:
        """Remove the lock and the socket of the X display that this child serves, and not those of
        a later server with the same number."""
        self._tell(f"display {number}:{pid}:{_listening(X_SOCKET.format(number))}")

    def log(self, name: str, lines: int = 12) -> str:
        """The end of a child's errors."""
        try:
            text = (self.folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    async def close(self) -> None:
        """End all children, remove all files; done when it is done."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with waiting("a desktop's processes to end"):  # they get SIGKILL
            await self._process.wait()
            await asyncio.gather(*(child.wait() for child in self._children))

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")


def _listening(path: str) -> str:
    """The number (inode) of the socket that listens at a path, as Linux lists them."""
    try:
        lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return NO_SOCKET
    fields = [line.split() for line in lines if line.endswith(f" {path}")]
    return next((found[6] for found in fields if found[3] == "00010000"), NO_SOCKET)


def _new_folder() -> Path:
    """A new folder in the first place for temporary files whose name is short enough."""
    tried = []
    for place in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        if len(os.fsencode(place)) > LONGEST_PLACE:
            tried.append(f"{place} (longer than {LONGEST_PLACE} bytes)")
            continue
        try:
            return Path(tempfile.mkdtemp(prefix="cua-lab-desktop-", dir=place))
        except OSError as error:
            tried.append(f"{place} ({error.strerror})")
    raise LabError(
        f"no folder for a desktop's temporary files: tried {'; '.join(tried)}. Set TMPDIR to a "
        "short path that can be written, such as /tmp"
    )


def _dies_with_us() -> Sequence[str]:
    """Where util-linux is absent the guard alone has to do."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()
