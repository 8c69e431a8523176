"""Recipes: strict, annotated, and what they resolve to can be loaded again."""

import dataclasses
import subprocess
import sys

import pytest
import yaml

from cua_lab.computer.config import ACTIONS, ToolConfig
from cua_lab.computer.settling import NoSettle, QuietFramebuffer
from cua_lab.envs.browser_screen import MOST_IN_PROCESS
from cua_lab.errors import LabError
from cua_lab.policy.shape import Shape
from cua_lab.recipes import dump_recipe, load_recipe, parse_recipe, recipe_names
from cua_lab.recipes.loader import FOLDER
from cua_lab.run.stage_context import build_stage, demonstrator_of

NAMES = [
    *("2048-best-merge", "2048-near-win", "2048-score", "browser-2048", "laptop", "miniwob"),
    *("qwen3-vl-2b-lora", "qwen3-vl-4b", "short-cut", "short-cut-gated", "smoke", "targets-2"),
]
MINIMAL = """
stages:
  - name: click
    tasks: {template: targets-click}
  - name: game
    tasks: {template: 2048-score}
"""


def test_the_package_has_the_recipes_of_the_main_job():
    assert set(recipe_names()) == set(NAMES)
    for name, second in (("smoke", "game"), ("laptop", "reading")):
        recipe = load_recipe(name)
        assert recipe.name == name
        assert [stage.name for stage in recipe.stages] == ["click", second]


def test_a_policy_that_must_read_cannot_spend_keys_instead():
    for name in ("laptop", "2048-near-win", "2048-best-merge"):
        stage = load_recipe(name).stages[-1]
        assert stage.tool.max_keys_per_call == 1
        assert stage.sft.think == "pair"
        assert "blind" in stage.eval.ablations
        assert demonstrator_of(build_stage(load_recipe(name), stage))(0).messages[2]["content"]
    assert load_recipe("2048-near-win").stages == (load_recipe("laptop").stage("reading"),)


def test_on_a_real_browser_screens_settle_and_no_more_play_than_one_process_may():
    pytest.importorskip("miniwob", reason="MiniWoB++ is not installed: pip install -e '.[browser]'")
    for name in ("miniwob", "browser-2048"):
        recipe = load_recipe(name)
        assert recipe.run.concurrency == MOST_IN_PROCESS
        for stage in recipe.stages:
            assert stage.tool.quiet_ms >= 40
            assert set(stage.eval.ablations) == {"shuffled", "blank", "random"}
            assert demonstrator_of(build_stage(recipe, stage))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_recipe_resolves_to_loads_to_the_same(name):
    """A run keeps it as config.yaml: it must say everything, defaults included."""
    recipe = load_recipe(name, ["run.seed=7"])
    text = dump_recipe(recipe)
    assert parse_recipe(text) == recipe
    assert yaml.safe_load(text)["stages"][0]["grpo"]["clip_high"] == 0.28


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_says_why(name):
    """Annotated: at least every fifth line carries a reason."""
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    assert sum("#" in line for line in lines) >= len(lines) / 5


def test_a_value_at_the_top_holds_for_all_stages_and_a_stage_may_differ():
    recipe = parse_recipe("grpo: {steps: 9, lr: 1e-4}\n" + MINIMAL + "    grpo: {steps: 4}\n")
    assert [stage.grpo.steps for stage in recipe.stages] == [9, 4]
    assert [stage.grpo.lr for stage in recipe.stages] == [1e-4, 1e-4]


def test_an_override_wins_over_the_file():
    text = MINIMAL + "    grpo: {steps: 4}\n"
    recipe = parse_recipe(
        text, overrides=["grpo.steps=7", "stages.click.grpo.lr=3e-4", "tasks.args.level=2"]
    )
    assert [stage.grpo.steps for stage in recipe.stages] == [7, 7]
    assert recipe.stage("click").grpo.lr == 3e-4
    assert recipe.stage("game").grpo.lr == 2e-4
    assert recipe.stage("game").tasks.args == {"level": 2}
    assert parse_recipe(text, overrides=["run.seed=3"]).run.seed == 3


def test_an_empty_section_takes_nothing_away():
    recipe = parse_recipe("grpo: {steps: 9}\n" + MINIMAL + "    grpo:\n")
    assert recipe.stage("game").grpo.steps == 9


@pytest.mark.parametrize("written", ["2e-4", "2.0e-4", "0.0002", "+2E-4", "20e-5"])
def test_a_small_number_may_be_written_as_people_do(written):
    """YAML 1.1 reads 2e-4 as text because it has no dot."""
    recipe = parse_recipe(MINIMAL, overrides=[f"grpo.lr={written}"])
    assert recipe.stages[0].grpo.lr == pytest.approx(2e-4)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("grpo: {stepz: 3}" + MINIMAL, r"mine.yaml, line 1: unknown key 'stages.click.grpo.stepz'"),
        ("grpo: {stepz: 3}" + MINIMAL, r"did you mean 'steps'\? Allowed .*steps, groups"),
        ("speed: 3" + MINIMAL, r"line 1: unknown key 'speed'.*name, stages, run, engine"),
        (
            MINIMAL + "    grpo:\n      lr: 3\n",
            r"line 8: stages.game.grpo.lr is 3; .* 0 to 0.1",
        ),
        (
            MINIMAL + "    sft: {steps: 2.5}",
            r"line 7: .*game.sft.steps is 2.5; .*whole number",
        ),
        (MINIMAL + "    sft: {steps: true}", r"is True; expected a whole number"),
        (MINIMAL + "    sft: {steps: many}", r"is 'many'; expected a whole number of at least 0"),
        (MINIMAL + "    grpo: {lr: .nan}", r"is nan; expected a number"),
        (MINIMAL + "    grpo: {kl: k4}", r"is 'k4'; expected one of 'none', 'k1', 'k2', 'k3'"),
        (MINIMAL + "    grpo: {kl_coef: 0.1}", r"stages.game.grpo: kl_coef is 0.1 but kl is"),
        (MINIMAL + "    grpo: 3", r"stages.game.grpo is 3; it is a section"),
        (MINIMAL + "    agent: {first_screenshot: 1}", r"is 1; expected true or false"),
        (MINIMAL + "    eval: {ablations: blind}", r"is 'blind'; expected a list"),
        (MINIMAL + "    eval: {ablations: [blond]}", r"ablations.0 is 'blond'; expected one of"),
        (MINIMAL + "    tasks: {template: x}", r"line 7: 'tasks' is given twice"),
        ("stages: [{name: click}]", r"stages.click.tasks is missing"),
        ("stages: [{tasks: {}}]", r"missing and has no default"),
        ("stages: [{name: a, tasks: {template: t}}, {name: a, tasks: {template: t}}]", "different"),
        ("stages: 3", "must be a list"),
        ("stages: []", "needs stages"),
        ("run: {seed: 1}", 'no "stages"'),
        ("[]", "mapping of sections"),
        ("stages: [", "not valid YAML"),
    ],
)
def test_a_mistake_is_named_with_key_place_and_what_is_allowed(text, says):
    with pytest.raises(LabError, match=says):
        parse_recipe(text, file="mine.yaml")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("grpo.steps", "write it as section.key=value"),
        ("grpo.stepz=4", r"override 'grpo.stepz=4': unknown key .*did you mean 'steps'"),
        ("grpo.steps=-1", r"override 'grpo.steps=-1': stages.click.grpo.steps is -1"),
        ("stages.chess.grpo.steps=1", "no stage 'chess'; there are click, game"),
        ("tasks.template.x=1", "'template' is a value, not a section"),
        ("name.x=1", "'name' is a value"),
    ],
)
def test_a_wrong_override_is_named_as_one(override, says):
    with pytest.raises(LabError, match=says):
        parse_recipe(MINIMAL, overrides=[override])


def test_a_recipe_of_your_own_is_given_by_its_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(MINIMAL)
    assert load_recipe(path).name == "mine"
    with pytest.raises(LabError, match="there is no file"):
        load_recipe(tmp_path / "other.yaml")
    with pytest.raises(
        LabError, match=r"no recipe 'mine'; there are 2048-best-merge, 2048-near-win, 2048"
    ):
        load_recipe("mine")


@pytest.mark.parametrize("name", NAMES)
def test_every_room_takes_its_settings(name):
    """A number that no room accepts would be found out in the middle of a run."""
    for stage in load_recipe(name).stages:
        assert isinstance(stage.policy, Shape)
        assert isinstance(stage.tool, ToolConfig)
        assert stage.tool.coordinate_space == "0-1000"


def test_a_tool_waits_for_a_quiet_screen_where_a_recipe_says_how_long():
    tool = "    tool: {quiet_ms: 40, react_ms: 30, actions: null}\n"
    click, game = parse_recipe(MINIMAL + tool).stages
    assert click.tool.settle == NoSettle()
    assert game.tool.settle == QuietFramebuffer(40, 30, 1000)
    assert game.tool.actions == ACTIONS  # null is what runs of an earlier version have on file


def test_what_the_tool_refuses_is_told_with_its_place():
    with pytest.raises(LabError, match=r"mine.yaml.*stages.game.tool.*unknown actions \['jump'\]"):
        parse_recipe(MINIMAL + "    tool: {actions: [jump]}\n", file="mine.yaml")


def test_settings_cannot_be_changed_after_loading():
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_recipe("smoke").run.seed = 1  # type: ignore[misc]


def test_loading_a_recipe_imports_nothing_heavy():
    """The command line answers at once."""
    code = "import sys; from cua_lab.recipes import load_recipe; load_recipe('laptop');"
    code += "print([m for m in ('torch', 'transformers', 'hud', 'numpy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_finished_runs_recipe_is_read_by_the_old_name_of_a_key():
    """`agent.token_in` was called `exact_continuation`."""
    old = MINIMAL + "agent: {exact_continuation: true}\n"
    assert [stage.agent.token_in for stage in parse_recipe(old).stages] == [True, True]
    (stage, *_) = parse_recipe(MINIMAL, overrides=["agent.exact_continuation=true"]).stages
    assert stage.agent.token_in
    both = MINIMAL + "agent: {exact_continuation: true, token_in: false}\n"
    with pytest.raises(LabError, match=r"line 7: 'exact_continuation' is 'token_in' by its old"):
        parse_recipe(both)
