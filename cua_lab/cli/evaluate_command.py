"""`cua-lab eval`: how well a policy aims on a grounding file, or does on the tasks of an env."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cua_lab.cli.root import app
from cua_lab.errors import LabError

if TYPE_CHECKING:
    from cua_lab.dataset.evaluation import GroundingReport
    from cua_lab.dataset.prompt_format import PromptFormat
    from cua_lab.env_package import EnvPackage
    from cua_lab.play.worker import Plan
    from cua_lab.run.task_evaluation import TaskReport
    from cua_lab.safety.gate import Gate

FAILED_SHARE = 0.1
"""Above it an evaluation is written, and its exit status is 1."""
SCREENS = ("own", "shuffled", "blank")


File = Annotated[
    Path | None, typer.Argument(help="Grounding samples, JSONL; or give --env instead.")
]
Model = Annotated[
    str, typer.Option(help="Checkpoint folder; with --base-url the name the server knows.")
]
BaseUrl = Annotated[
    str | None, typer.Option(help="Any OpenAI-compatible server, up to and with /v1.")
]
KeyFile = Annotated[
    str | None, typer.Option(help="File with the server's API key, where it needs one.")
]
FormatFile = Annotated[
    Path | None,
    typer.Option(
        help="prompt_format.json that the policy was trained with; default: its folder's.",
    ),
]
Out = Annotated[
    Path | None, typer.Option(help="Folder for eval.json and eval.html.", show_default="eval")
]
FileSpace = Annotated[
    str | None, typer.Option(help="Coordinate space of FILE, where its rows declare none.")
]
Root = Annotated[Path | None, typer.Option(help="Folder of the screenshots; default: FILE's own.")]
Screens = Annotated[str, typer.Option(help="own; shuffled or blank: does it use the screen?")]
Env = Annotated[
    str | None,
    typer.Option(help="Play this HUD env: lab, browser, miniwob, injection, or a package."),
]
Tasks = Annotated[
    list[str] | None, typer.Option(help="Slug or template of --env; may be given again.")
]
Split = Annotated[
    str | None, typer.Option(help="Set of tasks; miniwob has training, held-out and all.")
]
Args = Annotated[str, typer.Option(help="JSON object of the tasks' arguments.")]
Episodes = Annotated[
    int | None,
    typer.Option(min=1, help="Start states of each task.", show_default="64, or 8 of several"),
]
MaxTurns = Annotated[int, typer.Option(help="Of an episode; the task may say fewer.")]
Temperature = Annotated[float, typer.Option(help="Of episodes; FILE is answered greedily.")]
PolicySpace = Annotated[
    str | None,
    typer.Option(
        help="What a server's policy answers in: 0-1000 or pixels.",
        show_default="0-1000 with --env, whose tool says so",
    ),
]
Seed = Annotated[int, typer.Option(help="Of start states and sampling.")]
Concurrency = Annotated[
    int | None,
    typer.Option(min=1, help="Questions or episodes at a time.", show_default="32; 8 browsers"),
]
Threads = Annotated[int, typer.Option(help="CPU threads of a policy in this process.")]
StandardFields = Annotated[
    bool,
    typer.Option(
        "--standard-fields",
        help="Leave out top_k, min_p and repetition_penalty, for a server that refuses them.",
    ),
]

GatePolicy = Annotated[
    str | None,
    typer.Option(
        "--gate",
        help="Judge every call of --env first: default, lab, miniwob, or a policy file.",
        show_default="no gate",
    ),
]
Confirm = Annotated[
    str,
    typer.Option(help="Who is asked at the gate: deny (nobody, so the answer is no) or terminal."),
]


@app.command("eval")
def evaluate(
    file: File = None,
    model: Model = "",
    base_url: BaseUrl = None,
    key_file: KeyFile = None,
    prompt_format: FormatFile = None,
    out: Out = None,
    space: FileSpace = None,
    root: Root = None,
    screens: Screens = "own",
    env: Env = None,
    task: Tasks = None,
    split: Split = None,
    args: Args = "{}",
    episodes: Episodes = None,
    max_turns: MaxTurns = 15,
    temperature: Temperature = 1.0,
    policy_space: PolicySpace = None,
    seed: Seed = 0,
    concurrency: Concurrency = None,
    threads: Threads = 1,
    standard_fields: StandardFields = False,
    gate: GatePolicy = None,
    confirm: Confirm = "deny",
) -> None:
    """Measure a policy in this process (--model FOLDER) or behind a server (--base-url)."""
    if (file is None) == (env is None):
        raise LabError("give one of the two: a FILE of grounding samples, or --env PACKAGE")
    if not model:
        what = "the name the server knows" if base_url else "a checkpoint folder"
        raise LabError(f"--model is missing: {what}")
    if screens not in SCREENS:
        raise LabError(f"--screens is {screens!r}; expected one of {', '.join(SCREENS)}")
    _check_gate(gate, confirm, env)
    target = partial(_Target, model, base_url, key_file, threads, standard_fields)
    folder = out or Path("eval")
    if file is not None:
        policy = target(concurrency or 32)
        asked = policy.prompt_format(prompt_format, policy_space)
        report = asyncio.run(_grounding(policy, asked, file, space, root or file.parent, screens))
        _show_grounding(report)
        shown = "" if screens == "own" else f", {screens} screens"
        _write(report, folder, f"{model} on {file.name}{shown}")
        return
    package, plans, concurrency = _planned(
        str(env), task, args, split=split, episodes=episodes, seed=seed, concurrency=concurrency
    )
    policy = target(concurrency)
    asked = policy.prompt_format(prompt_format, policy_space or "0-1000")
    guard = None if gate is None else _gate(gate, confirm, folder)
    played = asyncio.run(_tasks(policy, asked, package, plans, max_turns, temperature, guard))
    _show_tasks(played)
    _write(played, folder, f"{model} on {env}")
    if played.overall.failed > FAILED_SHARE * len(played.episodes):
        raise typer.Exit(1)  # the rates are those of the episodes that ended early


def _planned(
    env: str,
    tasks: list[str] | None,
    args: str,
    *,
    split: str | None,
    episodes: int | None,
    seed: int,
    concurrency: int | None,
) -> tuple[EnvPackage, list[Plan], int]:
    """What is played, and how many at a time; before the policy is loaded, which takes seconds."""
    from cua_lab.env_package import env_package
    from cua_lab.run.task_evaluation import concurrency_for, evaluation_plans
    from cua_lab.tasks import parse_args

    package = env_package(env)
    plans = evaluation_plans(
        package, tasks, args=parse_args(args), episodes=episodes, seed=seed, split=split
    )
    return package, plans, concurrency_for(package, concurrency)


def _check_gate(gate: str | None, confirm: str, env: str | None) -> None:
    if confirm not in ("deny", "terminal"):
        raise LabError(f"--confirm is {confirm!r}; expected deny or terminal")
    if gate is None and confirm == "terminal":
        raise LabError("--confirm terminal needs a --gate that asks: --gate default")
    if gate is not None and env is None:
        raise LabError("--gate stands before the tasks of --env; a FILE of clicks runs none")
    if gate is not None:
        from cua_lab.safety.policy_file import load_policy

        load_policy(gate)  # a bad file is told now, not after a model was loaded


def _gate(policy: str, confirm: str, folder: Path) -> Gate:
    """The gate of an evaluation, with its log beside the results."""
    from cua_lab.safety.audit import AuditLog
    from cua_lab.safety.confirmers import AlwaysDeny, TerminalPrompt
    from cua_lab.safety.gate import Gate
    from cua_lab.safety.policy_file import load_policy

    confirmer = TerminalPrompt() if confirm == "terminal" else AlwaysDeny()
    return Gate(load_policy(policy), confirmer, audit=AuditLog(folder / "audit.jsonl"))


class _Target:
    """Who is measured."""

    def __init__(
        self,
        model: str,
        base_url: str | None,
        key_file: str | None,
        threads: int,
        standard_fields: bool,
        concurrency: int,
    ) -> None:
        from cua_lab.play.api_keys import read_key

        self.model, self.concurrency, self.threads = model, concurrency, threads
        self.base_url = None if base_url is None else base_url.rstrip("/") + "/"
        self.standard_fields = standard_fields
        self.key = None if key_file is None else read_key(key_file)
        self.policy: Any = None
        if base_url is None:
            from cua_lab.policy.policy import load_policy

            self.policy = load_policy(model)

    def prompt_format(self, path: Path | None, policy_space: str | None) -> PromptFormat:
        """As it was trained; else with the agent's words and all actions."""
        from cua_lab.dataset.prompt_format import (
            PromptFormat,
            prompt_format_of,
            read_prompt_format,
            saved_format,
        )
        from cua_lab.play.agent import SYSTEM_PROMPT
        from cua_lab.policy.vision import QWEN2_5_VL

        if path is not None:
            return read_prompt_format(path)
        if self.policy is not None:
            if (saved := saved_format(Path(self.model))) is not None:
                return read_prompt_format(saved)
            return prompt_format_of(self.policy, system=SYSTEM_PROMPT)
        if policy_space not in ("0-1000", "pixels"):
            raise LabError(
                "say what the server's policy answers in: --policy-space 0-1000 (Qwen3-VL), or"
                " pixels of the resized image (Qwen2.5-VL); or give its --prompt-format file"
            )
        if policy_space == "pixels":
            return PromptFormat("pixels", SYSTEM_PROMPT, geometry=QWEN2_5_VL)
        return PromptFormat("0-1000", SYSTEM_PROMPT)


async def _grounding(
    target: _Target, asked: PromptFormat, file: Path, space: str | None, root: Path, screens: Any
) -> GroundingReport:
    from tqdm import tqdm

    from cua_lab.dataset import predict
    from cua_lab.dataset.evaluation import evaluate_grounding
    from cua_lab.dataset.grounding import read_samples
    from cua_lab.dataset.spaces import as_space
    from cua_lab.run.task_evaluation import server_client
    from cua_lab.serving.server_check import check_server

    declared = None if space is None else as_space(space)
    samples = [predict.sized(sample, root) for sample in read_samples(file, space=declared)]
    questions = predict.questions_of(samples, root, screens)
    if not questions:
        raise LabError(f"{file} has no sample with a box: nothing can be measured")
    with tqdm(total=len(questions), desc="evaluate", unit="click") as bar:
        if target.policy is not None:
            points = await predict.predict_with_policy(
                target.policy,
                questions,
                asked,
                concurrency=target.concurrency,
                threads=target.threads,
                on_answer=bar.update,
            )
        else:
            async with server_client(target.base_url or "", target.key) as http:
                await check_server(http, target.model)
                points = await predict.predict_with_server(
                    http,
                    questions,
                    asked,
                    model=target.model,
                    concurrency=target.concurrency,
                    standard_fields=target.standard_fields,
                    on_answer=bar.update,
                )
    found = {id(question.sample): point for question, point in zip(questions, points, strict=True)}
    return evaluate_grounding(samples, lambda sample: found[id(sample)])


async def _tasks(
    target: _Target,
    asked: PromptFormat,
    package: EnvPackage,
    plans: list[Plan],
    max_turns: int,
    temperature: float,
    gate: Gate | None,
) -> TaskReport:
    from tqdm import tqdm

    from cua_lab.play.agent import agent_config
    from cua_lab.play.runtimes import make_runtime
    from cua_lab.recipes.settings import AgentSettings
    from cua_lab.run import task_evaluation as measured

    config = agent_config(
        AgentSettings(
            max_turns=max_turns,
            max_tokens=512,
            temperature=temperature,
            first_screenshot=asked.first_screenshot,
            stop_on=(),  # a server's policy may be told of its mistake and go on
        ),
        measured.tool_config_for(package, asked.config),
        model=target.model,
        token_ids=target.policy is not None,
        standard_only=target.standard_fields,
    ).model_copy(update={"system_prompt": asked.system, "gate": gate})
    if target.base_url is not None:
        await measured.check_base_url(target.base_url, target.key, target.model)
    runtime = make_runtime(package.source, "local", concurrency=target.concurrency)
    with tqdm(total=len(plans), desc="play", unit="episode") as bar:
        if target.policy is not None:
            episodes = await measured.play_with_policy(
                target.policy,
                plans,
                config,
                runtime,
                concurrency=target.concurrency,
                threads=target.threads,
                on_episode=lambda _: bar.update(),
            )
        else:
            episodes = await measured.play_with_server(
                target.base_url or "",
                plans,
                config,
                runtime,
                key=target.key,
                concurrency=target.concurrency,
                on_episode=lambda _: bar.update(),
            )
    failed = [episode for episode in episodes if episode.status == "failed"]
    if len(failed) == len(episodes):
        raise LabError(f"all {len(failed)} episodes failed; the first: {failed[0].error}")
    return measured.summarise(episodes, coordinate_space=asked.space)


def _show_grounding(report: GroundingReport) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "inside", "95%", "of")
    groups = (report.by_difficulty, report.by_size, report.by_type)
    rows = [("all", report.overall), *(pair for group in groups for pair in group.items())]
    for name, rate in rows:
        if rate.rate is not None:
            table.add_row(
                name, f"{rate.rate:.1%}", f"{rate.low:.1%} - {rate.high:.1%}", str(rate.count)
            )
    Console().print(table)
    typer.echo(f"{report.invalid} answers held no point; {report.unmeasured} samples have no box")


def _show_tasks(report: TaskReport) -> None:
    from rich.console import Console
    from rich.table import Table

    from cua_lab.run.gate_record import counts_of
    from cua_lab.run.task_evaluation import format_estimate

    table = Table("", "success", "95%", "reward", "valid calls", "failed")
    for name, result in [("all", report.overall), *report.by_task.items()]:
        rate, reward = result.success, result.reward
        table.add_row(
            name,
            "-" if rate is None or rate.rate is None else f"{rate.rate:.1%}",
            "-" if rate is None or rate.low is None else f"{rate.low:.1%} - {rate.high:.1%}",
            format_estimate(reward),
            "-" if (calls := result.valid_tool_calls) is None else f"{calls.mean:.1%}",
            str(result.failed),
        )
    Console().print(table)
    failed = [episode for episode in report.episodes if episode.status == "failed"]
    if failed:
        count = len(report.episodes)
        typer.echo(f"{len(failed)} of {count} episodes failed; the first: {failed[0].error}")
    if (gate := counts_of(report.episodes)) is not None:
        typer.echo(
            f"at the gate: {gate.actions} calls, {gate.risky} of them risky: {gate.confirmed}"
            f" confirmed, {gate.rejected} rejected, {gate.denied} denied"
        )


def _write(report: GroundingReport | TaskReport, folder: Path, title: str) -> None:
    from cua_lab.files import writing
    from cua_lab.run.task_evaluation import TaskReport
    from cua_lab.viz.grounding_page import grounding_page
    from cua_lab.viz.page import write_page

    folder.mkdir(parents=True, exist_ok=True)
    with writing(folder / "eval.json") as out:
        out.write(json.dumps({"title": title, **report.to_json()}, indent=1).encode() + b"\n")
    page = (
        report.to_html(title) if isinstance(report, TaskReport) else grounding_page(report, title)
    )
    write_page(folder / "eval.html", page)
    typer.echo(f"wrote {folder / 'eval.json'} and {folder / 'eval.html'}")
