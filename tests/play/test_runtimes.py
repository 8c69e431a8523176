"""One word of a recipe places the same rows; what cannot work is said before anything starts."""

import re
import sys
from pathlib import Path

import pytest
from hud.eval import LocalRuntime, SubprocessRuntime

from cua_lab.env_package import dockerfile_of
from cua_lab.errors import LabError
from cua_lab.play import runtimes
from cua_lab.play.runtimes import image_of, make_runtime

PACKAGES = ("cua_lab.envs.lab", "cua_lab.envs.browser", "cua_lab.envs.miniwob")
KEY = "dtn_not_a_real_key"


def test_local_and_subprocess_need_nothing() -> None:
    assert isinstance(make_runtime("cua_lab.envs.lab", concurrency=64), LocalRuntime)
    assert isinstance(make_runtime("cua_lab.envs.lab", "subprocess"), SubprocessRuntime)


def test_more_episodes_at_once_than_there_can_be_browsers_are_refused() -> None:
    """They would wait for each other's desktops, and the engine's rounds for them: forever."""
    with pytest.raises(LabError, match=r"at most 8 .* got run\.concurrency 32"):
        make_runtime("cua_lab.envs.browser", concurrency=32)


@pytest.mark.parametrize(
    ("package", "kind", "words"),
    [
        ("cua_lab.envs.lab", "cloud", "choose local, subprocess, docker, daytona"),
        ("no.such.package", "subprocess", "no HUD env package"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_ones(package, kind, words) -> None:
    with pytest.raises(LabError, match=words):
        make_runtime(package, kind)


def test_docker_says_which_of_program_engine_and_image_is_missing(monkeypatch) -> None:
    monkeypatch.setattr(runtimes.shutil, "which", lambda name: None)
    with pytest.raises(LabError, match="no `docker` on the PATH"):
        make_runtime("cua_lab.envs.lab", "docker")
    monkeypatch.setattr(runtimes.shutil, "which", lambda name: "/usr/bin/docker")
    monkeypatch.setattr(runtimes, "_quiet", lambda *command: 1)
    with pytest.raises(LabError, match="no Docker engine answers"):
        make_runtime("cua_lab.envs.lab", "docker")
    monkeypatch.setattr(runtimes, "_quiet", lambda *command: int("image" in command))
    with pytest.raises(LabError, match=r"docker build -f cua_lab/envs/lab/Dockerfile\.hud -t cua"):
        make_runtime("cua_lab.envs.lab", "docker")
    monkeypatch.setattr(runtimes, "_quiet", lambda *command: 0)
    assert make_runtime("cua_lab.envs.lab", "docker").runtime_config.image == "cua-lab-env"


def test_daytona_says_which_of_key_and_sdk_is_missing(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(runtimes.KEY_FILE, raising=False)
    with pytest.raises(LabError, match=runtimes.KEY_FILE):
        make_runtime("cua_lab.envs.lab", "daytona")
    monkeypatch.setitem(sys.modules, "daytona", None)
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o600)
    with pytest.raises(LabError, match=r"pip install -e '\.\[scale\]'") as caught:
        make_runtime("cua_lab.envs.lab", "daytona", key_file=file)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_dockerfile_serves_the_env_that_is_beside_it(package) -> None:
    """No engine here: what can be read is checked. Copied paths exist, the served file is the
    package's own, nothing is pulled by a moving tag, and no secret is asked for."""
    file = dockerfile_of(package)
    text = file.read_text()
    root = Path(__file__).parents[2]
    served = re.findall(r'"(cua_lab/[^"]+\.py)"', text)
    assert served == [f"{package.replace('.', '/')}/env.py"]
    assert (root / served[0]).is_file()
    assert all((root / path).exists() for path in re.findall(r"^COPY (\S+)", text, re.M))
    assert ":latest" not in text
    assert "--host" in text
    assert "0.0.0.0" in text
    assert not re.search(r"(?i)(api_?key|token|secret)", text)
    assert image_of(package).startswith("cua-lab-")
