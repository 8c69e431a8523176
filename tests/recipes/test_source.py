"""Whatever is in a recipe's file, reading it ends soon and in one line."""

from pathlib import Path

import pytest

from cua_lab.errors import LabError
from cua_lab.miles.recipe import load_miles_recipe
from cua_lab.recipes import load_recipe, parse_recipe
from cua_lab.recipes.sft_recipe import load_sft_recipe, parse_sft_recipe
from cua_lab.recipes.source import MAX_VALUES, read_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BOMB, rf"more than {MAX_VALUES:,} values once its aliases"),
        ("a: &a [*a]", "nested too deeply|more than"),
        ("[" * 5000 + "]" * 5000, "nested too deeply"),
        ("a: \x00", "not valid YAML.*#x0000"),
        ("a: \x07b", "not valid YAML.*#x0007"),
        ("a: \x85b\x9f", "not valid YAML|read as"),
        ("a: !!python/object:os.system x", "not valid YAML.*python/object"),
        ("a: !mine x", "not valid YAML.*!mine"),
        ("a: !!int x", "line 1: 'x' is no int"),
        ("a: !!int ''", "line 1: '' is no int"),
        ("a: !!float x", "line 1: 'x' is no float"),
        ("a: !!bool maybe", "line 1: 'maybe' is no bool"),
        ("a: !!binary aGk=", "line 1: 'aGk=' is read as a bytes"),
        ("a: 2026-11-30", "line 1: '2026-11-30' is read as a date.*quotes"),
        ("a: !!timestamp nonsense", "line 1: 'nonsense' is no timestamp"),
        ("? [a, b]\n: c", "line 1: a list or a section cannot be a key"),
        ("a: " + "9" * 5000, "line 1: .* is no int"),
        ("a: [1", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML.*single document"),
        ("x" * (2**20 + 1), "has 1,048,577 characters"),
    ],
    ids=lambda value: value[:24].replace("\n", " ") if isinstance(value, str) else None,
)
def test_hostile_yaml_is_one_line_that_names_the_file(text: str, says: str) -> None:
    """A bomb of nine lines did not end in 60 s; control characters and tags gave tracebacks."""
    with pytest.raises(LabError, match=says) as found:
        read_yaml(text, "mine.yaml", {})
    assert str(found.value).startswith("mine.yaml")
    assert "\n" not in str(found.value)


def test_an_alias_that_is_meant_is_read() -> None:
    assert read_yaml("a: &x [1, 2]\nb: *x", "mine.yaml", {}) == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize("load", [load_recipe, load_sft_recipe, load_miles_recipe])
@pytest.mark.parametrize("content", [b"\xff\xfe\x00n", b"name: \xe9"], ids=["utf-16", "latin-1"])
def test_another_encoding_is_named(tmp_path: Path, load: object, content: bytes) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    with pytest.raises(LabError, match=r"mine\.yaml is no UTF-8 text"):
        load(file)  # type: ignore[operator]


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"\xef\xbb\xbfname: mine\nstages:\n- {name: a, tasks: {template: t}}\n")
    assert load_recipe(file).name == "mine"


@pytest.mark.parametrize("name", ["/abs/folder", "..", "a/b", "a.b", "", "x" * 61, "a\\b", "-x"])
def test_a_stages_name_is_a_folders_and_no_path(name: str) -> None:
    """`name: /abs/folder` was removed before training."""
    text = f"stages:\n- {{name: {name!r}, tasks: {{template: t}}}}\n"
    with pytest.raises(LabError, match="stage's name is the name of its folder"):
        parse_recipe(text)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("train", "section.key=value"),
        ("=3", "section.key=value"),
        ("train..lr=3", "section.key=value"),
        ("seed.deeper=3", "'seed' is a value, not a section"),
        ("train.lr=[1", "not valid YAML"),
    ],
)
def test_an_override_that_cannot_be_read_is_one_line(override: str, says: str) -> None:
    with pytest.raises(LabError, match=says):
        parse_sft_recipe("seed: 1\n", overrides=[override])


def test_an_empty_section_takes_an_override() -> None:
    assert (
        parse_recipe(
            "grpo:\nstages:\n- {name: a, tasks: {template: t}, grpo: }\n",
            overrides=["grpo.steps=7"],
        )
        .stages[0]
        .grpo.steps
        == 7
    )
