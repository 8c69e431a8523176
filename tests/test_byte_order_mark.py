"""A byte order mark before the first line is no part of it (pydantic/pydantic-ai#8316)."""

import json
from pathlib import Path

import pytest

from cua_lab.dataset.data_checks import Rules
from cua_lab.dataset.grounding import read_samples
from cua_lab.dataset.prompt_format import PromptFormat, read_prompt_format
from cua_lab.dataset.quality import check_file
from cua_lab.errors import LabError
from cua_lab.miles.recipe import PUBLISHED, load_miles_recipe
from cua_lab.play.api_keys import load_key, read_key
from cua_lab.recipes.loader import FOLDER, load_recipe
from cua_lab.recipes.sft_recipe import load_sft_recipe
from cua_lab.tasks import mint, read_rows, write_rows
from cua_lab.training.sft_data import read_training_rows
from cua_lab.viz.runfiles import read_run

BOM = b"\xef\xbb\xbf"
ROW = {
    "screenshot": "a.png",
    "instruction": "Open the settings",
    "action": "click",
    "coordinates": [412, 87],
    "coordinate_space": "pixels",
}


@pytest.fixture
def marked(tmp_path):
    """Write a file that begins with a mark."""

    def write(name, text):
        path = tmp_path / name
        path.write_bytes(BOM + text.encode())
        return path

    return write


def test_samples(marked):
    path = marked("rows.jsonl", json.dumps(ROW) + "\n")
    assert [sample.coordinates for sample in read_samples(path)] == [(412, 87)]


def test_the_quality_filter_loses_no_row(marked, tmp_path):
    from PIL import Image

    Image.radial_gradient("L").resize((1024, 768)).save(tmp_path / "a.png")
    report = check_file(marked("rows.jsonl", json.dumps(ROW) + "\r\n"), Rules())
    assert (report.rows, report.accepted, report.reasons) == (1, 1, {})
    assert Path(report.files["accepted"]).read_bytes().startswith(b"{")


def test_the_quality_filter_names_other_encodings(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW), encoding="utf-16")
    with pytest.raises(LabError, match="UTF-16"):
        check_file(tmp_path / "rows.jsonl", Rules())


def test_training_rows(marked):
    assert (
        len(read_training_rows(marked("rows.jsonl", json.dumps(ROW)), PromptFormat(), space=None))
        == 1
    )


def test_task_rows(marked, tmp_path):
    write_rows(mint("cua_lab.envs.lab", slugs=["2048-score"]), tmp_path / "rows.jsonl")
    path = marked("marked.jsonl", (tmp_path / "rows.jsonl").read_text())
    assert read_rows(path) == read_rows(tmp_path / "rows.jsonl")


def test_recipes(marked):
    for load, source in (
        (load_recipe, FOLDER / "smoke.yaml"),
        (load_sft_recipe, next(iter(sorted(FOLDER.glob("sft-*.yaml"))))),
        (load_miles_recipe, PUBLISHED),
    ):
        text = source.read_text(encoding="utf-8")
        assert load(marked(source.name, text)) == load(source)


def test_a_prompts_settings(marked, tmp_path):
    saved = PromptFormat().save(tmp_path)
    assert read_prompt_format(marked("marked.json", saved.read_text())) == PromptFormat()


def test_keys(marked, monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    path = marked("key", "abc\n")
    path.chmod(0o600)
    assert read_key(path) == "abc"
    monkeypatch.setenv("SOME_KEY", "")
    assert load_key(path, "SOME_KEY") == "abc"


def test_a_runs_folder(marked, tmp_path):
    marked("metrics.jsonl", json.dumps({"task": "t", "phase": "grpo", "step": 0}) + "\n")
    marked("summary.json", "{}")
    assert len(read_run(tmp_path).steps) == 1
