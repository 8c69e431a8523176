"""`cua-lab data check` and `data convert`: the whole way from a file to its explanation."""

import json

import pytest
from PIL import Image
from typer.testing import CliRunner

import cua_lab.cli.commands  # noqa: F401  (registers the commands)
from cua_lab.cli import app
from cua_lab.errors import LabError


@pytest.fixture
def rows(tmp_path):
    """Two good rows and a bad one."""
    for index, name in enumerate(("a", "b")):
        image = Image.new("RGB", (1024, 768), "white")
        image.paste((30, 90, 200), (100 + 300 * index, 200, 300 + 300 * index, 400))
        image.save(tmp_path / f"{name}.png", compress_level=1)
    base = {"action": "click", "coordinates": [0.2, 0.4]}
    lines = [
        base | {"screenshot": "a.png", "instruction": "Open the file"},
        base | {"screenshot": "b.png", "instruction": "Open the folder"},
        base | {"screenshot": "c.png", "instruction": "Open the menu"},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run(*args: object):
    return CliRunner().invoke(app, ["data", *map(str, args)])


def test_check_prints_counts_and_writes_the_files(rows):
    result = run("check", rows, "--space", "0-1")
    assert result.exit_code == 0, result.output
    assert "screenshot_missing" in result.output
    assert "2 accepted, 1 rejected" in result.output
    folder = rows.with_name("rows.checked")
    assert len((folder / "accepted.jsonl").read_text().splitlines()) == 2
    assert json.loads((folder / "report.json").read_text())["rows"] == 3


def test_another_space_ends_with_status_1_and_says_which(rows):
    result = run("check", rows, "--space", "pixels")
    assert result.exit_code == 1
    assert "--space 0-1" in result.output.replace("\n", " ")


def test_an_undeclared_space_is_never_guessed(rows):
    result = run("check", rows)
    assert "space_undeclared" in result.output
    assert "0 accepted" in result.output


def test_options_that_are_wrong_are_one_clear_error(rows):
    for option in (["--min-size", "big"], ["--space", "percent"], ["--languages", "xx"]):
        result = run("check", rows, *option)
        assert isinstance(result.exception, LabError)


def test_convert_then_check(rows):
    public = rows.with_name("screenspot_web.json")
    row = {"img_filename": "a.png", "bbox": [100, 200, 200, 200], "instruction": "Open the box"}
    public.write_text(json.dumps([row, {"bbox": 3}]))
    out = rows.with_name("mine.jsonl")
    result = run("convert", "screenspot", public, out)
    assert "wrote 1 rows" in result.output
    assert "licence of the public rows: Apache-2.0" in " ".join(result.output.split())
    assert "1 rows could not be read" in result.output
    assert "1 accepted, 0 rejected" in run("check", out).output
