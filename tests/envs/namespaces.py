"""A stand-in for `docker build` and `docker run`: a Dockerfile's steps in a Debian of their own.

    debootstrap ──▶ base ──copy──▶ RUN, COPY, ENV, USER in namespaces ──▶ CMD serves

What stays untested is Docker itself: its layers, its seccomp profile, its network. The base is
Debian bookworm with a virtual environment on the PATH, as python:3.11-slim-bookworm has its Python.
"""

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from cua_lab.play.containers import _instructions

PATH = "/opt/python/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = "python3,python3-venv,ca-certificates"
HOST_FILES = ("etc/resolv.conf", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
"""How this machine reaches its package registries."""
ENTER = """\
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --rbind /dev dev
mkdir -p .old
pivot_root . .old
umount --lazy /.old
"""
"""A root of one's own, as containers have it: in a plain chroot no process may make the user
namespaces that Chromium's sandbox is built of."""


def debian(folder: Path) -> Path:
    """A bookworm with Python 3.11: minutes, and some 350 MB."""
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@dataclass(slots=True)
class Image:
    """A root folder and what the Dockerfile has said so far."""

    root: Path
    workdir: str = "/"
    user: str = "root"
    env: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)

    def build(self, dockerfile: Path, context: Path) -> None:
        """Execute every step, in order; one that is not known is an error."""
        for name, rest in _instructions(dockerfile.read_text(encoding="utf-8")):
            match name:
                case "FROM":
                    assert rest == "python:3.11-slim-bookworm", rest
                    self._reach_registries()
                    self.run(["python3", "-m", "venv", "/opt/python"])
                case "RUN":
                    self.run(["sh", "-c", rest])
                case "WORKDIR":
                    self.workdir = rest
                    (self.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
                case "COPY":
                    source, target = shlex.split(rest)
                    ignore = shutil.ignore_patterns("__pycache__")
                    to = self.root / target.lstrip("/")
                    shutil.copytree(context / source, to, ignore=ignore)
                case "ENV":
                    key, value = rest.split("=", 1)
                    self.env[key] = value
                case "USER":
                    self.user = rest
                case "CMD":
                    self.command = json.loads(rest)
                case "EXPOSE":
                    pass
                case _:
                    raise AssertionError(f"no way to execute {name} {rest}")

    def _reach_registries(self) -> None:
        for name in HOST_FILES:
            if Path("/", name).exists():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(Path("/", name), self.root / name)

    def argv(self, command: list[str]) -> list[str]:
        """What runs `command` as the image would."""
        inside = {"PATH": PATH, "HOME": f"/home/{self.user}", "DEBIAN_FRONTEND": "noninteractive"}
        inside |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        variables = [f"{name}={value}" for name, value in (inside | self.env).items()]
        user = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups"]
        there = f"cd {self.workdir} && exec {shlex.join(command)}"
        last = shlex.join([*user, "env", "-i", *variables, "sh", "-c", there])
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec",
                f"{ENTER}\nexec {last}", "sh", str(self.root)]  # fmt: skip

    def run(self, command: list[str]) -> None:
        done = subprocess.run(self.argv(command), capture_output=True, text=True)
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
