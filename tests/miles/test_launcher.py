"""The command, and that no secret is ever in it, in Ray's environment, in logs or in dumps."""

import asyncio
import json
import logging
import pickle
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cua_lab.cli import app, commands  # noqa: F401  (registers the commands)
from cua_lab.errors import LabError
from cua_lab.miles import episodes
from cua_lab.miles.generate import generate
from cua_lab.miles.launcher import (
    REPOSITORY,
    check_resume,
    checkpoints_of,
    clean_environment,
    command_of,
    for_mode,
    launch,
    miles_flags,
    write_resolved,
)
from cua_lab.miles.recipe import MilesRecipe, load_miles_recipe
from cua_lab.play.api_keys import load_key
from tests.miles.standin import StandIn

SECRET = "dtn_planted-5f0c2e77-not-a-real-key"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "api_key"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def recipe(tmp_path: Path, key_file: Path) -> MilesRecipe:
    return load_miles_recipe(
        overrides=[
            "model.path=/models/qwen",
            "tasks.data=/data/rows.jsonl",
            "cluster.miles=/src/miles",
            f"cluster.output={tmp_path}/out",
            f"runtime.key_file={key_file}",
        ]
    )


def flags_of(recipe: MilesRecipe, mode: Any) -> dict[str, str]:
    return {flag[0]: " ".join(flag[1:]) for flag in command_of(recipe, mode).flags}


def test_a_miles_user_recognises_the_command(recipe: MilesRecipe) -> None:
    flags = flags_of(recipe, "normal")
    expected = {
        "--hf-checkpoint": "/models/qwen",
        "--prompt-data": "/data/rows.jsonl",
        "--metadata-key": "metadata",
        "--custom-generate-function-path": "cua_lab.miles.generate.generate",
        "--custom-rm-path": "cua_lab.miles.reward.reward_func",
        "--custom-reward-post-process-path": "cua_lab.miles.reward.post_process_rewards",
        "--rollout-batch-size": "4",
        "--n-samples-per-prompt": "8",
        "--global-batch-size": "32",
        "--eps-clip": "0.2",
        "--eps-clip-high": "0.28",
        "--kl-loss-coef": "0.0",
        "--lr": "1e-06",
        "--sglang-tool-call-parser": "qwen25",
        "--sglang-sampling-defaults": "openai",
        "--distributed-timeout-minutes": "60",
        "--colocate": "",
    }
    assert expected.items() <= flags.items()
    assert "--calculate-per-token-loss" not in flags, "FSDP would sum the tokens (miles#3231)"
    assert "--debug-rollout-only" not in flags
    assert "--partial-rollout" not in flags


def test_no_image_features_of_old_weights_are_kept(recipe: MilesRecipe) -> None:
    """sglang's flush leaves them (its PR #36468 is open): a gap of .079 in the second step."""
    env = command_of(recipe, "normal").runtime_env["env_vars"]
    assert env["SGLANG_VLM_CACHE_SIZE_MB"] == "0"


def test_the_functions_that_the_flags_name_exist(recipe: MilesRecipe) -> None:
    import importlib

    for name, value in flags_of(recipe, "normal").items():
        if name.startswith("--custom-") and value.startswith("cua_lab."):
            module, _, function = value.rpartition(".")
            assert callable(getattr(importlib.import_module(module), function))


def test_modes_differ_in_size_and_in_whether_they_train(recipe: MilesRecipe) -> None:
    smoke, only = flags_of(recipe, "smoke"), flags_of(recipe, "rollout-only")
    assert [smoke[f] for f in ("--num-rollout", "--rollout-batch-size")] == ["1", "1"]
    assert [smoke[f] for f in ("--n-samples-per-prompt", "--global-batch-size")] == ["2", "2"]
    assert {"--debug-rollout-only"} == set(only) - set(flags_of(recipe, "normal"))
    assert "--debug-rollout-only" in smoke
    with pytest.raises(LabError, match="choose one of normal, rollout-only, smoke"):
        for_mode(recipe, "fast")  # type: ignore[arg-type]


def test_flags_that_only_some_recipes_need(recipe: MilesRecipe) -> None:
    changed = load_miles_recipe(
        overrides=["train.kl_coef=0.01", "train.scale=none", "train.normalise=sequence"]
    )
    flags = {flag[0] for flag in miles_flags(changed, "normal")}
    assert {"--use-kl-loss", "--disable-grpo-std-normalization"} <= flags
    assert "--calculate-per-token-loss" not in flags


def test_the_shell_reads_the_printed_command_as_it_is_run(recipe: MilesRecipe) -> None:
    import shlex

    command = command_of(recipe, "normal")
    _, _, submit = command.shown().partition("\n")
    assert tuple(shlex.split(submit.replace("\\\n", " "))) == command.submit


def test_launch_starts_ray_and_submits_without_the_callers_secrets(
    recipe: MilesRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[tuple[str, ...], dict[str, str]]] = []

    def run(words: tuple[str, ...], env: dict[str, str]) -> subprocess.CompletedProcess:
        ran.append((words, env))
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("DAYTONA_API_KEY", SECRET)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert launch(command_of(recipe, "normal")) == 0
    assert [words[:2] for words, _ in ran] == [("ray", "start"), ("ray", "job")]
    assert SECRET not in repr(ran)
    assert "PATH" in ran[0][1]


def test_variables_that_name_a_secret_stay_behind() -> None:
    environment = {"WANDB_API_KEY": "a", "HF_TOKEN": "b", "PATH": "/bin", "KEYBOARD": "de"}
    assert clean_environment(environment) == {"PATH": "/bin", "KEYBOARD": "de"}


def test_a_planted_secret_is_nowhere_but_in_its_file(
    recipe: MilesRecipe,
    key_file: Path,
    miles_args: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Command, Ray's environment, recipe on disk, dry run, logs, args and a dump of samples: Ray
    and Miles write all of these down in clear text. The provider here even quotes the key."""
    monkeypatch.setenv("DAYTONA_API_KEY", "")  # the test ends without the key, too
    monkeypatch.setattr(episodes, "make_runtime", lambda *_, key_file, **__: _Quoting(key_file))
    miles_args.cua_lab["runtime"].update(kind="daytona", key_file=str(key_file))
    caplog.set_level(logging.DEBUG)
    sample = StandIn(group_index=0, index=0, metadata={"hud_task": _TASK})
    asyncio.run(generate(miles_args, sample, {"temperature": 1.0}))
    assert "<the Daytona key>" in sample.metadata["cua_lab"]["reason"]

    command = command_of(recipe, "normal")
    options = ["--recipe", str(write_resolved(recipe, "normal")), "--dry-run"]
    dry = CliRunner().invoke(app, ["miles", *options])
    written = [
        command.shown(),
        json.dumps(command.runtime_env),
        write_resolved(recipe, "normal").read_text(),
        dry.output,
        caplog.text,  # HUD logs the provider's error with its traceback
        repr(miles_args),
        repr(vars(sample)),
        pickle.dumps(vars(sample)).decode("latin-1"),
    ]
    assert str(key_file) in written[2]
    assert "401 unauthorised: bearer <the Daytona key>" in caplog.text
    for place, text in enumerate(written):
        assert SECRET not in text, f"the key is in place {place}"


_TASK = {"env": "lab", "id": "2048-score", "slug": "2048-score", "args": {}}


class _Quoting:
    """A provider that loads the key as the real one does, and fails with it in its message."""

    def __init__(self, key_file: str) -> None:
        self.key = load_key(key_file, "DAYTONA_API_KEY")

    def __call__(self, task: Any) -> Any:
        raise RuntimeError(f"401 unauthorised: bearer {self.key}")


def test_workers_find_this_package(recipe: MilesRecipe) -> None:
    path = command_of(recipe, "normal").runtime_env["env_vars"]["PYTHONPATH"]
    assert path.split(":")[:2] == [str(REPOSITORY), "/src/miles"]
    assert (REPOSITORY / "cua_lab" / "miles" / "generate.py").is_file()


def test_a_run_goes_on_only_when_asked_to(recipe: MilesRecipe) -> None:
    """`--load` is always there: Miles starts from the model where nothing has been saved."""
    where = checkpoints_of(recipe)
    flags = flags_of(recipe, "normal")
    assert flags["--load"] == flags["--save"] == str(where)
    assert check_resume(recipe, resume=False) is None
    with pytest.raises(LabError, match="leave --resume out"):
        check_resume(recipe, resume=True)
    where.mkdir(parents=True)
    (where / "latest_checkpointed_iteration.txt").write_text("15\n")
    with pytest.raises(LabError, match="up to step 15: go on with --resume"):
        check_resume(recipe, resume=False)
    assert check_resume(recipe, resume=True) == 15
    (where / "latest_checkpointed_iteration.txt").write_text("release")
    with pytest.raises(LabError, match="'release', expected a step"):
        check_resume(recipe, resume=True)


def test_a_kl_loss_has_a_reference(recipe: MilesRecipe) -> None:
    """Miles checks the path of --ref-load with `os.path.exists`, which raises on None."""
    assert "--ref-load" not in flags_of(recipe, "normal")
    changed = replace(recipe, train=replace(recipe.train, kl_coef=0.01))
    flags = flags_of(changed, "normal")
    assert flags["--ref-load"] == recipe.model.path
    assert (flags["--kl-coef"], flags["--kl-loss-coef"]) == ("0.0", "0.01")


def test_a_smaller_node_and_a_dashboard_elsewhere(recipe: MilesRecipe) -> None:
    assert flags_of(recipe, "normal")["--num-gpus-per-node"] == "8"
    cluster = replace(recipe.cluster, gpus=4, wandb="screens", wandb_mode="offline")
    flags = flags_of(replace(recipe, cluster=cluster), "normal")
    assert flags["--num-gpus-per-node"] == flags["--actor-num-gpus-per-node"] == "4"
    assert (flags["--wandb-project"], flags["--wandb-mode"]) == ("screens", "offline")
    assert flags["--wandb-dir"] == f"{cluster.output}/wandb"
    assert {"--use-wandb", "--log-passrate", "--log-multi-turn"} <= set(flags)


def test_miles_own_flags_are_passed_on_with_their_values(recipe: MilesRecipe) -> None:
    more = ["--eval-interval", "5", "--eval-prompt-data", "held", "rows.jsonl", "--seed=-1"]
    flags = command_of(recipe, "normal", more).flags
    assert flags[-3:] == (
        ("--eval-interval", "5"), ("--eval-prompt-data", "held", "rows.jsonl"), ("--seed", "-1"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lr", "1e-5"], "--lr is made from the recipe"),
        (["--num-roll", "9"], "--num-rollout is made from the recipe"),
        (["--partial-rollout"], "an episode cannot be taken up again"),
        (["--micro-batch-size", "2"], "it is 1"),
        (["--calculate-per"], "miles#3231"),
        (["--wandb-key", SECRET], "in clear text"),
        (["5", "--lr"], "'5' stands where a flag"),
    ],
)
def test_what_would_spoil_a_run_is_refused_at_its_start(
    recipe: MilesRecipe, words: list[str], message: str
) -> None:
    with pytest.raises(LabError, match=message) as refused:
        command_of(recipe, "normal", words)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("mode", ["normal", "smoke"])
def test_miles_own_parser_takes_every_flag(
    recipe: MilesRecipe, mode: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With KL, wandb and flags of the user; what Miles then resumes from is the model."""
    arguments = pytest.importorskip("miles.utils.arguments")
    from miles.backends.fsdp_utils.arguments import build_fsdp_parser

    changed = replace(
        recipe,
        model=replace(recipe.model, path=str(checkpoint)),
        train=replace(recipe.train, kl_coef=0.01),
        cluster=replace(recipe.cluster, wandb="screens", wandb_mode="offline"),
    )
    parser = build_fsdp_parser(arguments.get_miles_extra_args_provider())
    command = command_of(changed, mode, ["--eval-interval", "5"])
    words = [word for flag in command.flags for word in flag]
    args, unknown = parser.parse_known_args(words)
    assert [name for name in unknown if not name.startswith("--sglang")] == [
        value for flag in command.flags if flag[0].startswith("--sglang") for value in flag[1:]
    ], "only sglang's own flags are another parser's"
    assert (args.micro_batch_size, args.use_dynamic_batch_size) == (1, False)
    assert args.ref_load == str(checkpoint)
    assert args.eval_interval == 5
    assert args.train_backend == "fsdp"
