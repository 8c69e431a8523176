"""One policy for several tasks: how they are dealt, checked, measured and told of."""

from itertools import pairwise

import pytest

from cua_lab.errors import LabError
from cua_lab.play.episode import Action, Episode
from cua_lab.recipes import dump_recipe, load_recipe, parse_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.measure import describe_result, measure
from cua_lab.run.progress import Progress
from cua_lab.run.stage import _dealt, _screenshots_of
from cua_lab.run.stage_context import build_stage, demonstrator_of
from cua_lab.stats import Estimate

RECIPE = """
grpo: {groups: 4, group_size: 2}
stages:
  - name: clicks
    tasks: {template: targets-click, args: {width: 96, height: 96}, vary: {level: [1, 2, 3]}}
"""


def setup_of(text=RECIPE, *overrides):
    recipe = parse_recipe(text, overrides=overrides)
    return build_stage(recipe, recipe.stages[0])


def test_variants_are_dealt_in_turn_and_a_group_has_one():
    context = setup_of()
    steps = [context.training_plans(step) for step in range(3)]
    dealt = [{p.group: p.task.args["level"] for p in plans} for plans in steps]
    assert [level for step in dealt for level in step.values()] == [1, 2, 3] * 4
    for plans in steps:
        starts = {(p.group, p.task.args["level"], p.task.args["seed"]) for p in plans}
        assert len(starts) == 4


def test_fresh_episodes_and_demonstrations_take_turns_too():
    context = setup_of(RECIPE, "run.concurrency=4")
    levels = [plan.task.args["level"] for plan in context.fresh_plans("eval", 24)]
    assert [levels.count(level) for level in (1, 2, 3)] == [8, 8, 8]
    changes = [
        sum(a != b for a, b in pairwise(levels[slot::4])) for slot in range(4)
    ]  # of the page in a browser
    assert changes == [0, 1, 1, 0]
    player = demonstrator_of(context)
    assert [player(i).messages for i in range(6)] == [player(i).messages for i in range(6)]


def test_members_of_neighbouring_groups_alternate_so_that_a_browser_keeps_its_page():
    """Eight browsers, eight groups: browser k plays group k, and never another page in a step."""
    plans = setup_of().training_plans(0)
    assert [plan.group[-1] for plan in plans] == ["0", "1", "2", "3"] * 2


def test_a_stage_without_variants_deals_as_it_always_did():
    text = RECIPE.replace(", vary: {level: [1, 2, 3]}", "")
    plans = setup_of(text).training_plans(1)
    assert [plan.id for plan in plans[:3]] == ["clicks-1-0-0", "clicks-1-0-1", "clicks-1-1-0"]
    assert {plan.task.slug for plan in plans} == {"targets-click"}


@pytest.mark.parametrize(
    ("vary", "complaint"),
    [
        ("{level: 3}", "give a list of different values"),
        ("{level: [2]}", "give a list of different values"),
        ("{level: [1, 2, 1]}", "give a list of different values"),
        ("{width: [96, 128]}", "fixed by args"),
        ("{seed: [1, 2]}", "dealt by the run"),
        ("{level: [1, 2], buttons: [2, 3]}", "vary takes one argument"),
        ("{levle: [1, 2]}", "no argument 'levle'"),
        ("{level: [1, hard]}", "argument 'level'"),
        ("{turns: [1, 2]}", "same for every episode"),
    ],
)
def test_what_cannot_vary_is_found_before_the_run(vary, complaint):
    with pytest.raises(LabError, match=complaint):
        setup_of(RECIPE.replace("{level: [1, 2, 3]}", vary))


def test_a_page_that_no_expert_solves_is_found_before_the_run():
    pytest.importorskip("miniwob")
    text = """
stages:
  - name: pages
    tasks:
      package: cua_lab.envs.miniwob
      template: miniwob
      args: {width: 160, height: 210}
      vary: {page: [click-test, chase-circle]}
"""
    with pytest.raises(LabError, match="no expert for 'chase-circle'"):
        demonstrator_of(setup_of(text, "run.concurrency=8"))


BOTH = """
run: {concurrency: 4}
stages:
  - name: reading
    tasks:
      template: 2048-near-win
      args: {width: 96, height: 96}
      also: {2048-best-merge: {}}
    tool: {actions: [press], max_keys_per_call: 1}
    policy: {grid_side: 6}
    agent: {max_turns: 2}
    sft: {think: pair}
    grpo: {groups: 4, group_size: 2}
"""


def test_one_policy_for_several_templates_each_with_its_own_task_and_turns():
    recipe = parse_recipe(BOTH)
    assert parse_recipe(dump_recipe(recipe)) == recipe
    context = build_stage(recipe, recipe.stages[0])
    near, merge = context.variants
    assert (near.args["turns"], merge.args["turns"], merge.args["width"]) == (2, 1, 96)
    plans = context.training_plans(0)
    assert {plan.task.id for plan in plans} == {"2048-near-win", "2048-best-merge"}
    assert all(plan.task.id == plan.task.slug for plan in plans)
    assert len({(plan.group, plan.task.id) for plan in plans}) == 4
    demos = [demonstrator_of(context)(index) for index in range(2)]
    assert [len(demo.images) for demo in demos] == [2, 1]
    tasks = [demo.messages[1]["content"][0]["text"] for demo in demos]
    assert "64 tile with 2 keys" in tasks[0]
    assert "Gain the most with 1 key." in tasks[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("also: {2048-near-win: {}}", "stage's template already"),
        ("also: {2048-best-merge: 3}", "give a mapping of arguments"),
        ("also: {2048-worst-merge: {}}", "no template '2048-worst-merge'"),
        ("{also: {2048-best-merge: {}}, vary: {tile: [64, 128]}}", "either `also` or `vary`"),
    ],
)
def test_what_cannot_be_learnt_beside_is_named(change, says):
    also = change if change.startswith("also") else change[1:-1].replace(", vary", "\n      vary")
    text = BOTH.replace("also: {2048-best-merge: {}}", also)

    def found() -> None:
        recipe = parse_recipe(text)
        build_stage(recipe, recipe.stages[0])

    with pytest.raises(LabError, match=says):
        found()


ALL = """
run: {concurrency: 4}
stages:
  - name: all
    tasks:
      template: 2048-near-win
      args: {width: 128, height: 128}
      also: {targets-click: {}, todo-complete: {turns: 1}}
    tool: {max_keys_per_call: 1}
    agent: {max_turns: 2}
    sft:
      players:
        2048-near-win: {think: pair}
        todo-complete: {think: list, random_rows: 0.0}
"""


def test_each_of_several_templates_has_a_player_with_arguments_of_its_own():
    recipe = parse_recipe(ALL)
    assert parse_recipe(dump_recipe(recipe)) == recipe
    player = demonstrator_of(build_stage(recipe, recipe.stages[0]))
    board, click, todo = (player(index).messages[2] for index in range(3))
    assert board["content"].endswith((" row", " column"))
    assert click["content"] == ""
    assert todo["content"][0] == "1"
    shared = parse_recipe(ALL.replace("      players:", "      think: list\n      players:"))
    with pytest.raises(LabError, match="says grid"):
        demonstrator_of(build_stage(shared, shared.stages[0]))


@pytest.mark.parametrize(
    ("players", "says"),
    [
        ("{todo-create: {}}", "which it does not play; it plays 2048-near-win, targets-click"),
        ("{todo-complete: list}", "give a mapping of arguments"),
        ("{todo-complete: {rows: 3}}", "rows"),
    ],
)
def test_arguments_of_a_player_that_there_is_not_are_found_before_the_run(players, says):
    recipe = parse_recipe(ALL.split("      players:")[0] + f"      players: {players}\n")
    with pytest.raises(LabError, match=says):
        demonstrator_of(build_stage(recipe, recipe.stages[0]))


def test_other_screens_are_those_of_the_same_template():
    """A board in place of a list would only tell that it is no list."""
    seen = [(bytes([i]),) for i in range(5)]
    dealt = _dealt(seen, 5, seed=0)
    assert sorted(dealt) == seen
    assert all(other != own for other, own in zip(dealt, seen, strict=True))
    played = [
        Episode(f"e{i}", "g", f"t{i % 2}", (), (), (bytes([i]),) * (i > 0), 0.0, "completed")
        for i in range(4)
    ]
    assert _screenshots_of(played) == {"t1": [(b"\1",), (b"\3",)], "t0": [(b"\2",)]}


def test_reading_is_counted_at_the_tasks_whose_screen_is_said():
    """A policy of several templates thinks at some: it has misread none of the others' screens."""
    click = Action({"action": "click", "x": 1, "y": 2}, True, "", None)
    says = Action({"action": "click", "x": 1, "y": 2}, True, "", None, "1 Buy milk 1")
    played = [
        Episode(task, "g", task, (), (act,), (), 0.0, "completed", False, {"readings": ["1 Buy"]})
        for task, act in (("targets-click", click), ("todo-complete", says))
    ]
    read = measure(played).screens_read
    assert (read.mean, read.n) == (1.0, 1)


def test_a_blind_search_that_an_env_has_not_is_found_before_the_run():
    recipe = load_recipe("miniwob", ["eval.ablations=[blind]"])
    with pytest.raises(LabError, match="leave out blind"):
        build_stage(recipe, recipe.stages[0])


def test_variants_survive_in_the_folder_of_a_run(tmp_path):
    recipe = parse_recipe(RECIPE)
    assert parse_recipe(dump_recipe(recipe)) == recipe
    progress = Progress()
    progress.stage("clicks").before = measure(episodes(a=[1.0, -1.0], b=[1.0]))
    folder = RunFolder.create(tmp_path / "run", resume=False)
    progress.save(folder)
    again = Progress.load(folder).stage("clicks").before
    assert again.by_variant["a"] == Estimate(0.5, 0.5, 2)
    assert again.by_variant["b"].mean == 1.0


# ─── rewards below zero ───────────────────────────────────────────────


def episodes(**rewards):
    """Episodes by task; a reward above zero is a success, as MiniWoB++ has it."""
    return [
        Episode(f"{task}-{i}", "g", task, (), (), (), reward, "completed", success=reward > 0)
        for task, values in rewards.items()
        for i, reward in enumerate(values)
    ]


def test_success_is_measured_by_variant_where_there_are_some():
    found = measure(episodes(a=[1.0, 1.0, -1.0, -1.0], b=[-1.0]))
    assert found.reward.mean == pytest.approx(-0.2)
    assert found.success.mean == pytest.approx(0.4)
    assert found.by_variant["a"].mean == 0.5
    assert measure(episodes(a=[1.0])).by_variant is None


def test_where_rewards_may_be_negative_the_words_are_about_success():
    """Half of a reward of -0.2 means nothing, and a policy that fails looks like one that looks."""
    before = measure(episodes(a=[1.0] * 40 + [-1.0] * 60))
    after = measure(episodes(a=[1.0] * 90 + [-1.0] * 10))
    blind = {name: measure(episodes(a=[1.0] * 10 + [-1.0] * 90)) for name in ("shuffled", "blank")}
    words = describe_result(before, after, blind)
    assert "success rate went from 0.400" in words
    assert "to 0.900" in words
    assert "It uses the screen: the same policy gets 0.100" in words
    seen = describe_result(before, after, {"blank": after})
    assert "does not read the screen" in seen


def answered(valid: int, invalid: int, success: bool = False) -> list[Episode]:
    actions = [Action({"action": "press", "keys": ["up"]}, True, "", None)] * valid
    actions += [Action(None, False, "", None)] * invalid
    return [
        Episode(f"e-{i}", "g", "t", (), (action,), (), float(success), "completed", success)
        for i, action in enumerate(actions)
    ]


def test_a_policy_that_says_no_valid_call_is_told_so_before_any_word_about_looking():
    """0 everywhere was told as "It does not read the screen": nobody had asked it to look."""
    mute = measure(answered(0, 30))
    words = describe_result(mute, mute, {"shuffled": mute, "blank": mute})
    assert words.startswith("None of its 30 answers held a valid call: it does not act")
    assert "read the screen" not in words
    assert "It looks" not in words
    rare = measure(answered(3, 27))
    assert describe_result(rare, rare, {"blank": rare}).startswith("Only 10% of its 30 answers")


def test_what_it_reads_is_told_in_cells_and_in_screens():
    def reading(*thoughts: str) -> list[Episode]:
        return [
            Episode(
                f"e-{i}",
                "g",
                "t",
                (),
                (Action({"action": "press", "keys": ["up"]}, True, "", None, thought),),
                (),
                1.0,
                "completed",
                True,
                {"readings": ["0123"]},
            )
            for i, thought in enumerate(thoughts)
        ]

    before, after = measure(reading("0120", "9999")), measure(reading("0123", "0120"))
    assert (before.cells_read.mean, before.screens_read.mean) == (0.375, 0.0)
    assert (after.cells_read.mean, after.screens_read.mean) == (0.875, 0.5)
    assert "87.5% of the cells are right, and 50% of the screens without a mistake (0% before)" in (
        describe_result(before, after, {})
    )
    silent = measure(reading("", ""))
    assert silent.cells_read is None, "a policy that only acts was not asked to read"


def test_words_instead_of_a_call_make_no_reader_of_a_policy_that_only_acts():
    acts = Action({"action": "click", "x": 1, "y": 2}, True, "", None)
    talks = Action(None, False, "mumble", None, "mumble")
    played = [
        Episode(f"e-{i}", "g", "t", (), (action,), (), 0.0, "completed", False, {"readings": ["r"]})
        for i, action in enumerate([acts, talks])
    ]
    assert measure(played).cells_read is None
