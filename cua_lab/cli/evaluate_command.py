"""`cua-lab eval`: how well a policy aims on a grounding file, or does on the tasks of an env."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cua_lab.cli.app import app
from cua_lab.errors import LabError

if TYPE_CHECKING:
    from cua_lab.computer.config import ToolConfig
    from cua_lab.dataset.evaluation import GroundingReport
    from cua_lab.dataset.prompt_format import PromptFormat
    from cua_lab.run.task_evaluation import TaskReport

FAILED_SHARE = 0.1
"""Above it an evaluation is written, and its exit status is 1."""
SCREENS = ("own", "shuffled", "blank")


@app.command("eval")
def evaluate(
    file: Annotated[
        Path | None, typer.Argument(help="Grounding samples, JSONL; or give --env instead.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="Checkpoint folder; with --base-url the name the server knows.")
    ] = "",
    base_url: Annotated[
        str | None, typer.Option(help="Any OpenAI-compatible server, up to and with /v1.")
    ] = None,
    key_file: Annotated[
        str | None, typer.Option(help="File with the server's API key, where it needs one.")
    ] = None,
    asking: Annotated[
        Path | None,
        typer.Option(help="asking.json that the policy was trained with; default: its folder's."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for eval.json and eval.html.", show_default="eval")
    ] = None,
    space: Annotated[
        str | None, typer.Option(help="Coordinate space of FILE, where its rows declare none.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder of the screenshots; default: FILE's own.")
    ] = None,
    screens: Annotated[
        str, typer.Option(help="own; shuffled or blank: is it looking at all?")
    ] = "own",
    env: Annotated[
        str | None,
        typer.Option(help="Play this HUD env: lab, browser, miniwob, injection, or a package."),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="Slug or template of --env; may be given again.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Set of tasks; miniwob has training, held-out and all.")
    ] = None,
    args: Annotated[str, typer.Option(help="JSON object of the tasks' arguments.")] = "{}",
    episodes: Annotated[
        int | None,
        typer.Option(min=1, help="Start states of each task.", show_default="64, or 8 of several"),
    ] = None,
    max_turns: Annotated[int, typer.Option(help="Of an episode; the task may say fewer.")] = 15,
    temperature: Annotated[float, typer.Option(help="Of episodes; FILE is answered greedily.")] = (
        1.0
    ),
    policy_space: Annotated[
        str | None,
        typer.Option(
            help="What a server's policy answers in: 0-1000 or pixels.",
            show_default="0-1000 with --env, whose tool says so",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of start states and sampling.")] = 0,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="Questions or episodes at a time.", show_default="32; 8 browsers"),
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads of a policy in this process.")] = 1,
    standard_fields: Annotated[
        bool,
        typer.Option(
            "--standard-fields",
            help="Leave out top_k, min_p and repetition_penalty, for a server that refuses them.",
        ),
    ] = False,
) -> None:
    """Measure a policy in this process (--model FOLDER) or behind a server (--base-url)."""
    import asyncio

    if (file is None) == (env is None):
        raise LabError("give one of the two: a FILE of grounding samples, or --env PACKAGE")
    if not model:
        what = "the name the server knows" if base_url else "a checkpoint folder"
        raise LabError(f"--model is missing: {what}")
    if screens not in SCREENS:
        raise LabError(f"--screens is {screens!r}; expected one of {', '.join(SCREENS)}")
    if env is not None:
        from cua_lab.env_package import env_package
        from cua_lab.run.task_evaluation import concurrency_for, evaluation_plans, tool_config_for
        from cua_lab.tasks import parse_args

        package = env_package(env)
        plans = evaluation_plans(
            package, task, args=parse_args(args), episodes=episodes, seed=seed, split=split
        )
        concurrency = concurrency_for(package, concurrency)
        policy_space = policy_space or "0-1000"
    target = _Target(model, base_url, key_file, concurrency or 32, threads, standard_fields)
    asked = target.asking(asking, policy_space)
    report: GroundingReport | TaskReport
    if file is not None:
        report = clicks = asyncio.run(
            _grounding(target, asked, file, space, root or file.parent, screens)
        )
        _show_grounding(clicks)
        title = f"{model} on {file.name}" + ("" if screens == "own" else f", {screens} screens")
    else:
        tool = tool_config_for(package, asked.config)
        turns = (max_turns, temperature)
        report = played = asyncio.run(_tasks(target, asked, tool, package, plans, turns))
        _show_tasks(played)
        title = f"{model} on {env}"
    _write(report, out or Path("eval"), title)
    if env is not None and played.overall.failed > FAILED_SHARE * len(played.episodes):
        raise typer.Exit(1)  # the rates are those of the episodes that ended early


class _Target:
    """Who is measured."""

    def __init__(
        self,
        model: str,
        base_url: str | None,
        key_file: str | None,
        concurrency: int,
        threads: int,
        standard_fields: bool = False,
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

    def asking(self, path: Path | None, policy_space: str | None) -> PromptFormat:
        """As it was trained; else with the agent's words and all actions."""
        from cua_lab.dataset.prompt_format import FILE, PromptFormat, asking_of, load_asking
        from cua_lab.play.agent import SYSTEM_PROMPT
        from cua_lab.policy.vision import QWEN2_5_VL

        if path is not None:
            return load_asking(path)
        if self.policy is not None:
            if Path(self.model, FILE).is_file():
                return load_asking(self.model)
            return asking_of(self.policy, system=SYSTEM_PROMPT)
        if policy_space not in ("0-1000", "pixels"):
            raise LabError(
                "say what the server's policy answers in: --policy-space 0-1000 (Qwen3-VL), or"
                " pixels of the resized image (Qwen2.5-VL); or give its --asking file"
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
    tool: ToolConfig,
    package: Any,
    plans: Any,
    turns: tuple[int, float],
) -> TaskReport:
    from tqdm import tqdm

    from cua_lab.play.agent import LabAgentConfig
    from cua_lab.play.runtimes import make_runtime
    from cua_lab.run import task_evaluation as measured
    from cua_lab.serving.sampling_request import sampling_request

    config = LabAgentConfig(
        model=target.model,
        system_prompt=asked.system,
        tool=tool,
        first_screenshot=asked.first_screenshot,
        max_steps=turns[0],
        completion_kwargs=sampling_request(
            temperature=turns[1],
            max_tokens=512,
            token_ids=target.policy is not None,
            standard_only=target.standard_fields,
        ),
    )
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
