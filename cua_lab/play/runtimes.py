"""Where episodes run: one word of a recipe becomes a HUD runtime.

    local        in this process, a new env for each episode
    subprocess   a child process per episode, as `python -m hud.environment.server` serves it
    docker       a container per episode, from the image of the package's Dockerfile.hud
    daytona      a sandbox in the cloud per episode, from the same image

A package that is served elsewhere says itself where: tcp:// is played on that server, docker:// in
a container per episode.

Invariant: `make_runtime` finds out before anything starts whether the runtime can work at all: a
missing program, SDK, key or image is a `LabError` that says how to get it. Credentials come from a
file alone, never from a recipe, and are never shown.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Literal, get_args

from cua_lab.env_package import EnvPackage, dockerfile_of, env_package
from cua_lab.errors import LabError
from cua_lab.hud_quirks import keep_keys_from_children
from cua_lab.play.containers import daytona_runtime
from cua_lab.served_env import ServedName, is_served

Kind = Literal["local", "subprocess", "docker", "daytona"]
KINDS: tuple[str, ...] = get_args(Kind)
KEY_FILE = "DAYTONA_API_KEY_FILE"
"""The variable that names the file with the Daytona key."""


def make_runtime(
    package: str,
    kind: Kind = "local",
    *,
    concurrency: int = 1,
    image: str | None = None,
    key_file: str | Path | None = None,
) -> Any:
    """The HUD runtime that plays the rows of an env package.

    `image` is the container image or Daytona's snapshot, by default named as the package's
    Dockerfile says; `key_file` holds the Daytona key, by default the file that
    DAYTONA_API_KEY_FILE names.
    """
    if kind not in KINDS:
        raise LabError(f"runtime is {kind!r}; choose {', '.join(KINDS)}")
    if is_served(package):
        return _served(ServedName(package), kind)
    if kind == "local":
        return _local(env_package(package), concurrency)
    if kind == "subprocess":
        from hud.eval import SubprocessRuntime

        keep_keys_from_children()
        return SubprocessRuntime(env_package(package).env_file)
    if kind == "docker":
        return _docker(package, image or image_of(package))
    return _daytona(package, image, key_file)


def _served(name: ServedName, kind: Kind) -> Any:
    """Where the package says, which is `local`, or `docker` for an image."""
    fits = ("local",) if name.image is None else ("local", "docker")
    if kind not in fits:
        raise LabError(
            f"{name.source} says itself where it runs, but the runtime is {kind}; expected"
            f" {' or '.join(fits)}"
        )
    return name.provider() if name.image is None else _docker(name.source, name.image)


def image_of(package: str) -> str:
    """The image's name, as the package's Dockerfile says: its `docker build ... -t NAME`."""
    text = dockerfile_of(package).read_text(encoding="utf-8")
    line = next((line for line in text.splitlines() if " -t " in line), None)
    if line is None:
        raise LabError(f"{dockerfile_of(package)} does not say `docker build ... -t NAME`")
    return line.split(" -t ")[1].split()[0]


def _local(package: EnvPackage, concurrency: int) -> Any:
    from hud.eval import LocalRuntime

    package.check_concurrency(concurrency, "run.concurrency")
    return LocalRuntime(package.env_file if package.build is None else package.build)


def _docker(package: str, image: str) -> Any:
    from hud.eval import DockerRuntime

    if shutil.which("docker") is None:
        raise LabError(
            "runtime is docker, but there is no `docker` on the PATH: install Docker, or choose "
            "runtime: subprocess"
        )
    if _quiet("docker", "version", "--format", "{{.Server.Version}}") != 0:
        raise LabError(
            "runtime is docker, but no Docker engine answers (`docker version` fails): start it, "
            "or choose runtime: subprocess"
        )
    if _quiet("docker", "image", "inspect", image) != 0:
        if is_served(package):
            raise LabError(f"there is no image {image!r}: `docker pull {image}`, or build it")
        file = dockerfile_of(package)
        raise LabError(
            f"there is no image {image!r}: build it from the root of the repository with "
            f"`docker build -f {_from_root(file)} -t {image} .`"
        )
    return DockerRuntime(image)


def _from_root(file: Path) -> str:
    parts = file.parts
    return "/".join(parts[parts.index("cua_lab") :]) if "cua_lab" in parts else file.name


def _quiet(*command: str) -> int:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode
    except subprocess.TimeoutExpired:
        return 1


def _daytona(package: str, image: str | None, key_file: str | Path | None) -> Any:
    path = key_file or os.environ.get(KEY_FILE)
    if not path:
        raise LabError(
            f"runtime is daytona, but there is no key: put it into a file that only you can read "
            f"and name the file in {KEY_FILE}"
        )
    return daytona_runtime(package, image or image_of(package), path)
