"""From a recipe to the command that a Miles user would have typed.

    MilesRecipe + mode ──miles_flags──▶ flags ──command_of──▶ ray job submit ... -- python3 train.py

Modes: `normal` trains; `rollout-only` plays the same batches and trains nothing; `smoke` plays two
episodes, which is enough for the faults that every episode has, and not for reward spread, weight
sync or stability. Invariant: flags and Ray's runtime environment are made of the recipe's values
alone; no environment variable of the caller is passed on but those named in FORWARDED.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from cua_lab.errors import LabError
from cua_lab.files import write_text
from cua_lab.miles.recipe import MilesRecipe, dump_miles_recipe

Mode = Literal["normal", "rollout-only", "smoke"]
MODES: tuple[str, ...] = get_args(Mode)
FORWARDED = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_DEBUG", "MASTER_ADDR")
"""Network settings that workers on other nodes need; none can hold a secret."""
SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)
"""Variables that are kept from the processes started here."""
RESOLVED = "miles-recipe.yaml"
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Command:
    """What is run, in order."""

    ray: tuple[str, ...]
    """Starts Ray on this node; not run where RAY_ADDRESS names a cluster."""
    flags: tuple[tuple[str, ...], ...]
    """Miles' flags, each with its values."""
    runtime_env: Mapping[str, Mapping[str, str]]
    """Ray records it in clear text with the job."""
    train: str
    """Miles' train.py."""

    @property
    def submit(self) -> tuple[str, ...]:
        words = [word for flag in self.flags for word in flag]
        address = () if "RAY_ADDRESS" in os.environ else ("--address=http://127.0.0.1:8265",)
        env = json.dumps(self.runtime_env)
        head = ("ray", "job", "submit", *address, f"--runtime-env-json={env}")
        return (*head, "--", "python3", self.train, *words)

    def shown(self) -> str:
        """For a shell, a flag a line."""
        words = sum(len(flag) for flag in self.flags)
        head = shlex.join(self.submit[:-words])
        lines = [head, *(shlex.join(flag) for flag in self.flags)]
        return f"{shlex.join(self.ray)}\n" + " \\\n  ".join(lines)


def for_mode(recipe: MilesRecipe, mode: Mode) -> MilesRecipe:
    """The recipe with the sizes of the mode."""
    if mode not in MODES:
        raise LabError(f"mode is {mode!r}; choose one of {', '.join(MODES)}")
    if mode != "smoke":
        return recipe
    return replace(recipe, train=replace(recipe.train, rollouts=1, prompts=1, samples=2))


def command_of(recipe: MilesRecipe, mode: Mode, more: Sequence[str] = ()) -> Command:
    """The whole command; the recipe's paths must be set. `more` are Miles' own flags, passed on."""
    cluster = recipe.cluster
    sources = [str(REPOSITORY), cluster.sources, *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(sources),
        "no_proxy": "127.0.0.1,localhost",
        "SGLANG_VLM_CACHE_SIZE_MB": "0",  # image features of old weights would outlive an update
        **{name: os.environ[name] for name in FORWARDED if name in os.environ},
    }
    flags = miles_flags(for_mode(recipe, mode), mode)
    return Command(
        ray=("ray", "start", "--head", f"--num-gpus={cluster.gpus}", "--disable-usage-stats"),
        flags=(*flags, *passed_on(more, flags)),
        runtime_env={"env_vars": env},
        train=f"{cluster.sources}/train.py",
    )


def miles_flags(recipe: MilesRecipe, mode: Mode) -> tuple[tuple[str, ...], ...]:
    """Miles' flags in the order of its own examples."""
    groups = (
        _model_and_data(recipe),
        _rollout(recipe),
        _plug_in(recipe),
        _optimizer(recipe),
        _grpo(recipe),
        _trainer(recipe),
        _server(recipe),
        _cluster(recipe, debug=mode != "normal"),
    )
    return tuple(tuple(map(str, flag)) for group in groups for flag in group)


Flags = list[tuple[object, ...]]
KEPT_OUT = {
    "--partial-rollout": "an episode cannot be taken up again",
    "--calculate-per-token-loss": "Miles' FSDP trainer sums the tokens (miles#3231)",
    "--micro-batch-size": "positions of several samples are joined wrongly; it is 1",
    "--use-dynamic-batch-size": "positions of several samples are joined wrongly",
    "--rollout-top-p": "sglang's log-probabilities know nothing of it; it is 1",
    "--rollout-top-k": "sglang's log-probabilities know nothing of it; it is off",
    "--group-rm": "the env grades each episode",
    "--balance-data": "ranks would get samples in another order than the check of equal steps",
    "--wandb-key": "Ray writes it down in clear text; `wandb login` on each node instead",
}
"""Flags of Miles that would end the run, or spoil it: what is known at launch is refused there."""


def passed_on(
    words: Sequence[str], flags: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], ...]:
    """Miles' own flags as somebody typed them after `--`, each with its values.

    Refused are those that the recipe gives, for the record would say something else, and those of
    `KEPT_OUT`; argparse takes a beginning for the whole name, so beginnings are refused, too.
    """
    given = {flag[0] for flag in flags}
    grouped: list[tuple[str, ...]] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            _check_flag(name, given)
            grouped.append((name, value) if equals else (name,))
        elif not grouped:
            raise LabError(f"{word!r} stands where a flag of Miles should: cua-lab miles -- --flag")
        else:
            grouped[-1] = (*grouped[-1], word)
    return tuple(grouped)


def _check_flag(name: str, given: set[str]) -> None:
    for known, why in KEPT_OUT.items():
        if known.startswith(name):
            raise LabError(f"{name}: {why}")
    if meant := next((flag for flag in sorted(given) if flag.startswith(name)), None):
        raise LabError(f"{name}: {meant} is made from the recipe; change it there, or with --set")


def _model_and_data(recipe: MilesRecipe) -> Flags:
    return [
        ("--hf-checkpoint", recipe.model.path),
        ("--prompt-data", recipe.tasks.data),
        ("--input-key", "prompt"),
        ("--label-key", "label"),
        ("--metadata-key", "metadata"),
        ("--apply-chat-template",),
        ("--rollout-shuffle",),
    ]


def _rollout(recipe: MilesRecipe) -> Flags:
    train, context = recipe.train, recipe.context
    return [
        ("--num-rollout", train.rollouts),
        ("--rollout-batch-size", train.prompts),
        ("--n-samples-per-prompt", train.samples),
        ("--global-batch-size", train.episodes),
        ("--rollout-max-response-len", context.response),
        ("--rollout-max-context-len", context.limit),
        ("--rollout-temperature", recipe.agent.temperature),
    ]


def _plug_in(recipe: MilesRecipe) -> Flags:
    return [
        ("--custom-generate-function-path", "cua_lab.miles.generate.generate"),
        ("--custom-rm-path", "cua_lab.miles.reward.reward_func"),
        ("--custom-reward-post-process-path", "cua_lab.miles.reward.post_process_rewards"),
        ("--custom-rollout-log-function-path", "cua_lab.miles.rollout_log.log_rollout"),
        ("--custom-eval-rollout-log-function-path", "cua_lab.miles.rollout_log.log_eval"),
        ("--custom-config-path", Path(recipe.cluster.output) / RESOLVED),
    ]


def _optimizer(recipe: MilesRecipe) -> Flags:
    train = recipe.train
    return [
        ("--optimizer", "adam"),
        ("--lr", train.lr),
        ("--lr-decay-style", "constant"),
        ("--weight-decay", train.weight_decay),
        ("--adam-beta1", train.beta1),
        ("--adam-beta2", train.beta2),
    ]


def _grpo(recipe: MilesRecipe) -> Flags:
    train = recipe.train
    flags: Flags = [
        ("--advantage-estimator", "grpo"),
        ("--kl-loss-coef", train.kl_coef),
        ("--kl-loss-type", "low_var_kl"),
        ("--kl-coef", 0.0),
        ("--entropy-coef", 0.0),
        ("--eps-clip", train.clip_low),
        ("--eps-clip-high", train.clip_high),
    ]
    if train.kl_coef > 0:
        flags += [("--use-kl-loss",), ("--ref-load", recipe.model.path)]
    if train.scale == "none":
        flags.append(("--disable-grpo-std-normalization",))
    return flags


def _trainer(recipe: MilesRecipe) -> Flags:
    return [
        ("--train-backend", "fsdp"),
        ("--gradient-checkpointing",),
        ("--attn-implementation", recipe.model.attention),
        ("--update-weight-buffer-size", 512 * 2**20),
        ("--distributed-timeout-minutes", recipe.cluster.timeout_minutes),
    ]


def _server(recipe: MilesRecipe) -> Flags:
    server = recipe.server
    return [
        ("--rollout-num-gpus-per-engine", server.gpus_per_engine),
        ("--sglang-mem-fraction-static", server.memory_share),
        ("--sglang-attention-backend", server.attention),
        ("--sglang-tool-call-parser", recipe.model.tool_call_parser),
        # Its default fills what a request leaves out from the checkpoint's generation_config.
        ("--sglang-sampling-defaults", "openai"),
        ("--sglang-enable-metrics",),
    ]


def _cluster(recipe: MilesRecipe, *, debug: bool) -> Flags:
    cluster = recipe.cluster
    flags: Flags = [
        ("--actor-num-nodes", cluster.nodes),
        ("--actor-num-gpus-per-node", cluster.gpus),
        # Of the rollout; its default of 8 places engines on GPUs that a smaller node does not have.
        ("--num-gpus-per-node", cluster.gpus),
        ("--colocate",),
        # Where nothing has been saved yet, Miles starts from --hf-checkpoint.
        ("--load", checkpoints_of(recipe)),
        ("--save", checkpoints_of(recipe)),
        ("--save-interval", cluster.save_every),
        ("--dump-details", Path(cluster.output) / "dump"),
        ("--use-miles-dashboard",),
        ("--log-multi-turn",),
        ("--log-passrate",),
    ]
    if cluster.wandb:
        flags += [
            ("--use-wandb",),
            ("--wandb-project", cluster.wandb),
            ("--wandb-mode", cluster.wandb_mode),
            ("--wandb-dir", Path(cluster.output) / "wandb"),
        ]
    return [*flags, ("--debug-rollout-only",)] if debug else flags


def checkpoints_of(recipe: MilesRecipe) -> Path:
    """Where a run saves, and goes on from."""
    return Path(recipe.cluster.output) / "checkpoints"


def saved_step(recipe: MilesRecipe) -> int | None:
    """The step that a run in this output folder would go on from; `None` where it starts anew."""
    tracker = checkpoints_of(recipe) / "latest_checkpointed_iteration.txt"
    if not tracker.is_file():
        return None
    text = tracker.read_text(encoding="utf-8").strip()
    if not text.isdigit():
        raise LabError(f"{tracker} holds {text!r}, expected a step; remove it, or restore the file")
    return int(text)


def check_resume(recipe: MilesRecipe, *, resume: bool) -> int | None:
    """Refuse to go on by accident, or to start where there is nothing to go on from."""
    step = saved_step(recipe)
    where = checkpoints_of(recipe)
    if step is None and resume:
        raise LabError(f"--resume, but {where} holds no checkpoint: leave --resume out")
    if step is not None and not resume:
        raise LabError(
            f"{where} holds checkpoints up to step {step}: go on with --resume, or choose another"
            " --output"
        )
    return step


def write_resolved(recipe: MilesRecipe, mode: Mode) -> Path:
    """The recipe as Miles will read it, for the plug-in and for the record."""
    path = Path(recipe.cluster.output) / RESOLVED
    return write_text(path, dump_miles_recipe(for_mode(recipe, mode)))


def launch(command: Command) -> int:
    """Run it; returns the exit status. Variables that may hold secrets stay behind."""
    env = clean_environment(os.environ)
    if "RAY_ADDRESS" not in env:
        status = subprocess.run(command.ray, env=env).returncode
        if status:
            raise LabError(
                f"`{shlex.join(command.ray)}` ended with status {status}: end an old Ray with `ray"
                " stop`, or set RAY_ADDRESS to a running cluster"
            )
    return subprocess.run(command.submit, env=env).returncode


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the variables that name a secret: Ray's processes inherit what starts them."""
    return {name: v for name, v in environment.items() if not SECRET_NAME.search(name)}
