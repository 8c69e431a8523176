"""Images from an env package's own Dockerfile.hud."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from cua_lab.errors import LabError
from cua_lab.play.api_keys import load_key
from cua_lab.play.containers import daytona_runtime, image_source, stage_image

SERVE = "python -m hud.environment.server cua_lab/envs/lab/env.py --host 0.0.0.0 --port 8765"


def package(folder: Path, dockerfile: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "env.py").write_text("")
    (folder / "Dockerfile.hud").write_text(dockerfile)
    return folder


def test_the_labs_own_package_is_read_from_its_dockerfile() -> None:
    source = image_source("cua_lab.envs.lab")
    assert source.copied == ("cua_lab",)
    assert (source.context / "cua_lab" / "envs" / "lab").is_dir()
    assert (source.workdir, source.command) == ("/app", SERVE)
    assert source.build_command("x").startswith(f"docker build -f {source.dockerfile} -t x ")


def test_a_package_that_copies_itself_is_its_own_context(tmp_path: Path) -> None:
    """What `hud init` writes; continued lines, flags, stages and URLs are no sources."""
    folder = package(
        tmp_path / "web",
        "FROM a AS b\n# COPY nothing .\nCOPY --from=b /x /y\nADD https://e.org/f /f\n"
        'COPY --chown=1 env.py \\\n  ./\nCOPY ["env.py", "/z"]\nCMD hud serve env.py\n',
    )
    source = image_source(folder)
    assert source.context == folder
    assert source.copied == ("env.py", "env.py")
    assert (source.workdir, source.command) == ("/", "hud serve env.py")


def test_only_what_is_copied_is_staged(tmp_path: Path) -> None:
    """Daytona uploads the context and rebuilds on any change: no caches, no neighbours."""
    root = tmp_path / "repository"
    folder = package(root / "envs" / "web", "FROM a\nCOPY shared /s\nCMD x\n")
    (root / "shared" / "__pycache__").mkdir(parents=True)
    (root / "shared" / "__pycache__" / "a.pyc").write_text("")
    (root / "shared" / "a.py").write_text("a")
    (root / "secret.txt").write_text("s")
    staged = stage_image(image_source(folder), tmp_path / "staged")
    files = sorted(str(p.relative_to(staged.parent)) for p in staged.parent.rglob("*"))
    assert files == ["Dockerfile.hud", "shared", "shared/a.py"]


@pytest.mark.parametrize(
    ("dockerfile", "words"),
    [
        (None, "has no Dockerfile.hud"),
        ("FROM a\n", "has no CMD"),
        ("COPY q .\nCMD x\n", "copies q"),
    ],
)
def test_what_a_package_lacks_is_named(tmp_path: Path, dockerfile: str | None, words: str) -> None:
    folder = package(tmp_path / "web", dockerfile or "")
    if dockerfile is None:
        (folder / "Dockerfile.hud").unlink()
    with pytest.raises(LabError, match=words):
        image_source(folder)


def test_daytona_serves_what_the_dockerfile_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HUD's default command looks for env.py in /app, where the lab's package has none."""
    seen: list[Path] = []
    fake = ModuleType("daytona")

    class Image:
        @staticmethod
        def from_dockerfile(path: Path) -> str:
            seen.append(path)
            return "an image"

    fake.Image = Image  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "daytona", fake)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DAYTONA_API_KEY", "")
    (tmp_path / "key").write_text("k\n")
    (tmp_path / "key").chmod(0o600)
    runtime = daytona_runtime("cua_lab.envs.lab", "lab", tmp_path / "key")
    assert (runtime.snapshot_name, runtime.command, runtime.workdir) == ("lab", SERVE, "/app")
    assert sorted(p.name for p in seen[0].parent.iterdir()) == ["Dockerfile.hud", "cua_lab"]


def test_a_key_comes_from_its_file_and_a_missing_one_says_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "")
    with pytest.raises(LabError, match="install -m 600"):
        load_key(tmp_path / "none", "A_KEY")
    (tmp_path / "key").write_text(" \n")
    with pytest.raises(LabError, match="chmod 600"):
        load_key(tmp_path / "key", "A_KEY")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(LabError, match="must hold one key"):
        load_key(tmp_path / "key", "A_KEY")
    (tmp_path / "key").write_text("value\n")
    assert load_key(tmp_path / "key", "A_KEY") == "value"
