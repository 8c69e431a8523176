"""Preflight: packages, programs and GPUs of this node. Each function yields its `Check`s."""

from __future__ import annotations

import netrc
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cua_lab.checks import Check, installed_version
from cua_lab.miles.launcher import REPOSITORY
from cua_lab.miles.recipe import MilesRecipe
from cua_lab.play.containers import image_source

SGLANG = ((0, 5, 18), "choice.response_token_ids"), ((0, 5, 17), "choice.token_ids")
SGLANG_OLDEST = (0, 5, 13)
"""The first whose chat completions give ids at all; up to 0.5.16 as triples in meta_info."""
WANDB_HOST = "api.wandb.ai"
OPENAI = (2, 45)
"""HUD's least version; sglang pins an older one, so whichever is installed last wins."""


def sdks(recipe: MilesRecipe) -> Iterator[Check]:
    yield _package("hud", "pip install 'hud>=0.6.21,<0.7'")
    if recipe.runtime.kind == "daytona":
        yield _package("daytona", "pip install 'hud[daytona]'")
        yield _package("asyncssh", "pip install 'hud[daytona]'")
    if recipe.runtime.kind == "docker":
        yield _docker(recipe)
    openai = installed_version("openai")
    if openai and _numbers(openai) < OPENAI:
        yield Check(
            "openai",
            "warn",
            f"openai {openai}; HUD asks for 2.45 or newer, sglang pins an older one",
            "in the environment of the rollout: pip install 'openai>=2.45' after sglang, and run"
            " `cua-lab miles --mode smoke`",
        )
    elif openai:
        yield Check("openai", "ok", openai)


def _package(name: str, fix: str) -> Check:
    version = installed_version(name)
    if version is None:
        return Check(name, "fail", "not installed", fix)
    return Check(name, "ok", version)


def _docker(recipe: MilesRecipe) -> Check:
    source = image_source(recipe.tasks.package)
    if shutil.which("docker") is None:
        return Check("docker", "fail", "no docker on the path", "install Docker, or choose daytona")
    words = ("docker", "image", "inspect", "--format={{.Id}}", recipe.runtime.name)
    found = subprocess.run(words, capture_output=True, text=True, timeout=20)
    if found.returncode:
        build = source.build_command(recipe.runtime.name)
        return Check("docker", "fail", f"no image {recipe.runtime.name}", build)
    return Check("docker", "ok", f"image {recipe.runtime.name}, {found.stdout.strip()[:19]}")


def engine(_: MilesRecipe) -> Iterator[Check]:
    version = installed_version("sglang")
    if version is None:
        yield Check("sglang", "fail", "not installed", "run inside Miles' image, which has it")
        return
    number = _numbers(version)
    if number < SGLANG_OLDEST:
        yield Check(
            "sglang",
            "fail",
            f"{version}: its chat completions give no token ids",
            "use sglang 0.5.18 or newer; 0.5.13 is the oldest that can work",
        )
        return
    where = next((w for least, w in SGLANG if number >= least), "meta_info triples")
    yield Check("sglang", "ok", f"{version}: output ids in {where}")


def miles(recipe: MilesRecipe) -> Iterator[Check]:
    train = Path(recipe.cluster.sources) / "train.py"
    if train.is_file():
        yield Check("miles", "ok", str(train))
    else:
        yield Check(
            "miles",
            "fail",
            f"no {train}",
            "git clone https://github.com/radixark/miles, or run inside its image; then"
            " --miles FOLDER",
        )
    if shutil.which("ray"):
        yield Check("ray", "ok", installed_version("ray") or "on the path")
    else:
        yield Check(
            "ray", "fail", "no `ray` on the path", "run inside Miles' image, or pip install ray"
        )


def transformers(recipe: MilesRecipe) -> Iterator[Check]:
    """The plug-in takes Miles' own version; installing this package whole would raise it."""
    found = installed_version("transformers")
    if found is None:
        yield Check("transformers", "fail", "not installed", "run inside Miles' image")
        return
    file = Path(recipe.cluster.sources) / "requirements.txt"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    pinned = re.search(r"^transformers==([\w.]+)", text, re.MULTILINE)
    if pinned is None or pinned[1] == found:
        yield Check("transformers", "ok", f"{found}{', as Miles pins it' if pinned else ''}")
        return
    fix = (
        f"pip install transformers=={pinned[1]}; the plug-in goes in without it: pip install"
        f" --no-deps {REPOSITORY} && cd {REPOSITORY} && pip install --group plugin"
    )
    yield Check("transformers", "fail", f"{found}, Miles pins {pinned[1]}", fix)


def wandb(recipe: MilesRecipe) -> Iterator[Check]:
    """The key must be in ~/.netrc: nothing that Ray writes down may hold it."""
    project, mode = recipe.cluster.wandb, recipe.cluster.wandb_mode
    if not project:
        return
    if installed_version("wandb") is None:
        yield Check("wandb", "fail", "not installed", "pip install wandb")
    elif mode == "online" and not _netrc_has(WANDB_HOST):
        yield Check(
            "wandb",
            "fail",
            f"~/.netrc has nothing for {WANDB_HOST}"
            + (" (WANDB_API_KEY is set, but is not passed on)" if _wandb_variable() else ""),
            "`wandb login` on each node, or --set cluster.wandb_mode=offline",
        )
    else:
        yield Check("wandb", "ok", f"project {project}, {mode}")


def _wandb_variable() -> bool:
    return bool(os.environ.get("WANDB_API_KEY"))


def _netrc_has(host: str) -> bool:
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def gpus(recipe: MilesRecipe) -> Iterator[Check]:
    wanted = recipe.cluster.gpus
    fix = f"run on a node with {wanted} GPUs, or --set cluster.gpus=N"
    if shutil.which("nvidia-smi") is None:
        yield Check("GPUs", "fail", "no nvidia-smi on the path", fix)
        return
    listed = subprocess.run(("nvidia-smi", "-L"), capture_output=True, text=True, timeout=20)
    found = len(listed.stdout.splitlines()) if listed.returncode == 0 else 0
    if found < wanted:
        yield Check("GPUs", "fail", f"{found} GPUs, the recipe needs {wanted}", fix)
    else:
        yield Check("GPUs", "ok", f"{found} GPUs")


def _numbers(version: str) -> tuple[int, ...]:
    from packaging.version import Version

    return Version(version).release
