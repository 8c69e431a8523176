"""Images of env packages, built from the package's own `Dockerfile.hud`.

    env package (env.py, tasks.py, Dockerfile.hud) ──image_source──▶ what to build, how to serve it

The build's context is the nearest folder above the file that has all that it copies; where that is
not the package itself, the file and just those parts are staged in one folder. Invariant: nothing
but what the Dockerfile copies is ever uploaded.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cua_lab.env_package import dockerfile_of
from cua_lab.errors import LabError
from cua_lab.play.api_keys import DAYTONA_KEY, read_key

PORT = 8765


@dataclass(frozen=True, slots=True)
class ContainerSource:
    """What an image is built from."""

    dockerfile: Path
    context: Path
    """The folder that COPY starts from."""
    copied: tuple[str, ...]
    """Sources of the file's COPY and ADD lines, relative to the context."""
    workdir: str
    command: str
    """What serves the env, as one shell line."""

    def build_command(self, tag: str) -> str:
        """For people: how to make the Docker image."""
        return f"docker build -f {self.dockerfile} -t {tag} {self.context}"


def image_source(package: str | Path) -> ContainerSource:
    """Read the package's Dockerfile.hud."""
    dockerfile = dockerfile_of(package)
    lines = _instructions(dockerfile.read_text(encoding="utf-8"))
    copied = tuple(
        source for name, rest in lines if name in ("COPY", "ADD") for source in _sources(rest)
    )
    commands = [rest for name, rest in lines if name == "CMD"]
    if not commands:
        raise LabError(f"{dockerfile} has no CMD, so nothing says how its env is served")
    workdirs = [rest for name, rest in lines if name == "WORKDIR"]
    return ContainerSource(
        dockerfile=dockerfile,
        context=_context(dockerfile, copied),
        copied=copied,
        workdir=workdirs[-1] if workdirs else "/",
        command=_shell(commands[-1]),
    )


def stage_image(source: ContainerSource, folder: Path) -> Path:
    """Dockerfile and what it copies in one folder; returns the file there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in source.copied:
        origin, target = source.context / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(origin, target, ignore=ignore, dirs_exist_ok=True)
        else:
            shutil.copy2(origin, target)
    return Path(shutil.copy2(source.dockerfile, folder / source.dockerfile.name))


def daytona_runtime(package: str | Path, name: str, key_file: str | Path) -> Any:
    """A sandbox an episode, from a snapshot that Daytona builds of the package when it changed."""
    from hud.eval import DaytonaRuntime

    source = image_source(package)
    try:
        from daytona import Image
    except ModuleNotFoundError as error:
        raise LabError("the Daytona SDK is missing: pip install -e '.[scale]'") from error
    # HUD's runtime takes no key: the SDK below it reads the environment.
    os.environ[DAYTONA_KEY] = read_key(Path(key_file).expanduser())
    dockerfile = source.dockerfile
    if source.context != dockerfile.parent:
        # Daytona hashes what it uploads and rebuilds on a change: the same folder each time.
        dockerfile = stage_image(source, Path.home() / ".cache" / "cua-lab" / "images" / name)
    return DaytonaRuntime(
        name,
        image=Image.from_dockerfile(dockerfile),
        command=source.command,
        workdir=source.workdir,
        port=PORT,
    )


def _instructions(text: str) -> list[tuple[str, str]]:
    """(NAME, rest) of each line, comments dropped, continued lines joined."""
    kept = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\s*\n", " ", "\n".join(kept))
    pairs = (line.strip().partition(" ") for line in joined.splitlines() if line.strip())
    return [(name.upper(), rest.strip()) for name, _, rest in pairs]


def _sources(rest: str) -> list[str]:
    """Sources of a COPY line that come from the context."""
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    if any(word.startswith("--from") for word in words):
        return []
    plain = [word for word in words if not word.startswith("--")]
    return [word for word in plain[:-1] if "://" not in word]


def _context(dockerfile: Path, copied: tuple[str, ...]) -> Path:
    for folder in (dockerfile.parent, *dockerfile.parents[1:]):
        if all(any(folder.glob(name)) or (folder / name).exists() for name in copied):
            return folder
    raise LabError(f"{dockerfile} copies {', '.join(copied)}, and no folder above it has all of it")


def _shell(command: str) -> str:
    return shlex.join(json.loads(command)) if command.startswith("[") else command
