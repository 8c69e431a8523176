"""Task rows: right and whole, or one clear error and no file."""

import json
from pathlib import Path

import pytest
from hud.eval import Task
from typer.testing import CliRunner

from cua_lab.cli import app, commands  # noqa: F401  (registers the commands)
from cua_lab.errors import LabError
from cua_lab.tasks import load_tasks, mint, parse_args, read_rows, row_of, to_hud_task, write_rows

LAB = "cua_lab.envs.lab"


def test_a_row_is_a_message_with_the_slug_and_the_task_to_run() -> None:
    (row,) = mint(LAB, slugs=["2048-score"])
    assert row == {
        "prompt": [{"role": "user", "content": "2048-score"}],
        "label": "2048-score",
        "metadata": {
            "hud_task": {
                "env": "lab",
                "id": "2048-score",
                "args": {"seed": 0},
                "slug": "2048-score",
            }
        },
    }


def test_without_slugs_every_public_task_is_minted() -> None:
    assert [row["label"] for row in mint(LAB)] == [task.slug for task in load_tasks(LAB)]


def test_arguments_are_overridden_and_the_others_kept() -> None:
    (row,) = mint(LAB, slugs=["2048-near-win-64"], args={"seed": 7, "turns": 1})
    args = row["metadata"]["hud_task"]["args"]
    assert args == {"seed": 7, "tile": 64, "merges": 2, "turns": 1}


def test_a_group_is_a_run_of_equal_rows() -> None:
    rows = mint(LAB, slugs=["2048-score", "todo-create"], repeat=3)
    assert [row["label"] for row in rows] == ["2048-score"] * 3 + ["todo-create"] * 3
    assert rows[0] == rows[1] == rows[2]


def test_one_group_per_seed() -> None:
    rows = mint(LAB, slugs=["targets-click-1"], seeds=range(5, 7), repeat=2)
    assert [row["metadata"]["hud_task"]["args"]["seed"] for row in rows] == [5, 5, 6, 6]


def test_rows_come_back_from_a_file_as_they_went_in(tmp_path: Path) -> None:
    rows = mint(LAB, repeat=2)
    assert write_rows(rows, tmp_path / "new" / "rows.jsonl") == len(rows)
    assert read_rows(tmp_path / "new" / "rows.jsonl") == rows


def test_a_row_becomes_the_task_that_hud_runs() -> None:
    for task in load_tasks(LAB):
        made = to_hud_task(row_of(task))
        assert (made.env, made.id, made.args, made.slug) == (
            task.env,
            task.id,
            task.args,
            task.slug,
        )


def test_a_package_may_be_a_directory_that_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(
        "from hud.environment import Environment\n"
        "env = Environment('tiny')\n"
        "@env.template()\n"
        "async def count(word: str, times: int = 1):\n"
        "    yield word\n"
        "    yield 1.0\n"
    )
    (tmp_path / "tasks.py").write_text("from env import count\ntasks = [count(word='abc')]\n")
    (row,) = mint(tmp_path, args={"times": 2})
    assert row["metadata"]["hud_task"]["args"] == {"word": "abc", "times": 2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"slugs": ["2048-scor"]}, r"unknown slug '2048-scor' \(did you mean '2048-score'\?\)"),
        ({"slugs": ["zzz"]}, "known: targets-click-1, targets-click-2"),
        ({"args": {"sed": 1}}, r"no argument 'sed' \(did you mean 'seed'\?\); it takes seed"),
        (
            {"args": {"seed": "one"}},
            "argument 'seed' .* got 'one', input should be a valid integer",
        ),
        ({"args": {"seed": True}}, "input should be a valid integer"),
        ({"slugs": ["targets-click-1"], "args": {"reward": "near"}}, "'inside' or 'distance'"),
        ({"repeat": 0}, "repeat must be at least 1"),
        ({"seeds": range(0)}, "range of seeds is empty"),
    ],
)
def test_a_wrong_request_is_one_error_that_says_what_is_known(options, words) -> None:
    with pytest.raises(LabError, match=words):
        mint(LAB, **options)


@pytest.mark.parametrize("package", ["nope", "nope.deeper", "cua_lab.nope", "json", "", "a b", "."])
def test_what_is_no_env_package_is_one_error(package: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LabError):
        mint(package)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "no list named `tasks`"),
        ("tasks = 5\n", "no list named `tasks`"),
        ("tasks = [1]\n", "no list named `tasks`"),
        ("tasks = []\n", "there is nothing to mint"),
    ],
)
def test_a_package_without_tasks_says_so(tmp_path: Path, source: str, words: str) -> None:
    (tmp_path / "env.py").write_text(
        'from hud.environment import Environment\nenv = Environment("mine")\n'
    )
    (tmp_path / "tasks.py").write_text(source)
    with pytest.raises(LabError, match=words):
        load_tasks(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "bad JSON"),
        ("", "bad JSON"),
        ("[1]", "must be a JSON object"),
        ("5", "must be a JSON object"),
        ('{"seed": NaN}', "NaN is not a JSON number"),
    ],
)
def test_arguments_that_are_no_json_object_are_refused(text: str, words: str) -> None:
    with pytest.raises(LabError, match=words):
        parse_args(text)


def test_a_row_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(mint(LAB), path)
    before = path.read_bytes()
    bad = mint(LAB)
    bad[-1]["metadata"]["hud_task"]["args"] = {"seed": float("nan")}
    with pytest.raises(LabError, match="cannot be written"):
        write_rows(bad, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_where_a_directory_should_be_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot write"):
        write_rows(mint(LAB), tmp_path / "file" / "rows.jsonl")


GOOD = json.dumps(row_of(Task(env="lab", id="2048-score", slug="a")))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: expected a JSON object"),
        ("{}", "line 2: `prompt` must be one user message"),
        (GOOD.replace('"user"', '"system"'), "line 2: `prompt` must be one user message"),
        (GOOD.replace('"label"', '"labl"'), "line 2: `label` is missing"),
        (GOOD.replace('"hud_task"', '"task"'), "line 2: `metadata.hud_task` must be an object"),
        (GOOD.replace('"env": "lab", ', ""), "line 2: `metadata.hud_task.env` is missing"),
        (GOOD.replace('"args": {}', '"args": []'), "line 2: `metadata.hud_task.args` must be an"),
        (GOOD.replace('"slug": "a"', '"slug": ""'), "line 2: `metadata.hud_task.slug` must be a"),
    ],
)
def test_reading_names_the_line_and_what_it_lacks(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{GOOD}\n{line}\n")
    with pytest.raises(LabError, match=words):
        read_rows(path)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="cua-lab data mint"):
        read_rows(tmp_path / "none.jsonl")


def test_separators_inside_of_strings_do_not_end_a_line(tmp_path: Path) -> None:
    """U+2028 is a line end to str.splitlines and none to JSONL."""
    rows = mint(LAB, slugs=["todo-create"], args={"text": "one\u2028two"})
    write_rows(rows, tmp_path / "rows.jsonl")
    assert read_rows(tmp_path / "rows.jsonl") == rows


def test_the_command_mints_a_file_and_lists_tasks(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    runner = CliRunner()
    words = ["data", "mint", str(out), "--slug", "targets-click-1", "--seeds", "0:2"]
    result = runner.invoke(app, [*words, "--repeat", "4", "--args", '{"reward": "distance"}'])
    assert result.exit_code == 0, result.output
    assert "8 rows (2 groups of 4)" in result.output
    assert {row["metadata"]["hud_task"]["args"]["reward"] for row in read_rows(out)} == {"distance"}
    assert "2048-near-win-64" in runner.invoke(app, ["data", "tasks"]).output


@pytest.mark.parametrize(
    "wrong", [["--args", "{"], ["--slug", "x"], ["--repeat", "0"], ["--seeds", "5"]]
)
def test_a_failed_command_writes_nothing(tmp_path: Path, wrong: list[str]) -> None:
    out = tmp_path / "rows.jsonl"
    result = CliRunner().invoke(app, ["data", "mint", str(out), *wrong])
    assert isinstance(result.exception, LabError)
    assert list(tmp_path.iterdir()) == []
