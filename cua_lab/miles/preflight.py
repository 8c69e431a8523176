"""Everything an episode will need, looked at before a GPU is claimed.

Inside Miles each of these faults would fail every episode and the batch would be refilled in
silence. A `Check` says what was seen and how to mend it. Invariant: every check is made, whatever
the others found, so that one look lists all that is missing; nothing is started or claimed, and no
secret is shown.
"""

import importlib.metadata
import importlib.util
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cua_lab.doctor import Check
from cua_lab.errors import LabError
from cua_lab.miles.agreement import compare
from cua_lab.miles.cost import Costs, checkpoint_bytes, checkpoints, costs_of, mib
from cua_lab.miles.recipe import MilesRecipe
from cua_lab.rollout.runtimes import DAYTONA_KEY, image_source

SGLANG = ((0, 5, 18), "choice.response_token_ids"), ((0, 5, 17), "choice.token_ids")
SGLANG_OLDEST = (0, 5, 13)
"""The first whose chat completions give ids at all; up to 0.5.16 as triples in meta_info."""
PARSERS = {"qwen25": "<tool_call>", "qwen": "<tool_call>", "hermes": "<tool_call>"}
"""sglang's parser -> what the chat template must contain."""
OPENAI = (2, 45)
"""HUD's least version; sglang pins an older one, so whichever is installed last wins."""


def preflight(recipe: MilesRecipe, *, trains: bool = True) -> list[Check]:
    """Every check, in the order of the report; fewer for a run that only plays."""
    looks: tuple[Callable[[MilesRecipe], Iterator[Check]], ...] = (
        _sdks,
        _engine,
        _miles,
        _gpus,
        _credentials,
        _env_package,
        _rows,
        _model,
        _context,
        *((_batch, _timeout) if trains else ()),
        _disk,
        *((_trainer,) if trains else ()),
    )
    return [check for look in looks for check in _complete(look, recipe)]


def _complete(
    look: Callable[[MilesRecipe], Iterator[Check]], recipe: MilesRecipe
) -> Iterator[Check]:
    """The look's checks; a user's mistake or a missing package ends this look, not the others."""
    name = look.__name__.strip("_").replace("_", " ")
    try:
        yield from look(recipe)
    except LabError as error:
        yield Check(name, "fail", str(error), "as it says")
    except ModuleNotFoundError as error:
        yield Check(name, "fail", f"{error.name} is not installed", f"pip install {error.name}")


# ─── software ────────────────────────────────────────────────────────────


def _sdks(recipe: MilesRecipe) -> Iterator[Check]:
    yield _package("hud", "pip install 'hud>=0.6.21,<0.7'")
    if recipe.runtime.kind == "daytona":
        yield _package("daytona", "pip install 'hud[daytona]'")
        yield _package("asyncssh", "pip install 'hud[daytona]'")
    if recipe.runtime.kind == "docker":
        yield _docker(recipe)
    openai = _version("openai")
    if openai and _numbers(openai) < OPENAI:
        yield Check(
            "openai",
            "warn",
            f"openai {openai}; HUD asks for 2.45 or newer, sglang pins an older one",
            "in the environment of the rollout: pip install 'openai>=2.45' after sglang, and run"
            " `cua-lab miles --mode smoke`",
        )
    elif openai:
        yield Check("openai", "ok", openai)


def _package(name: str, fix: str) -> Check:
    version = _version(name)
    if version is None:
        return Check(name, "fail", "not installed", fix)
    return Check(name, "ok", version)


def _docker(recipe: MilesRecipe) -> Check:
    source = image_source(recipe.tasks.package)
    if shutil.which("docker") is None:
        return Check("docker", "fail", "no docker on the path", "install Docker, or choose daytona")
    words = ("docker", "image", "inspect", "--format={{.Id}}", recipe.runtime.name)
    found = subprocess.run(words, capture_output=True, text=True, timeout=20)
    if found.returncode:
        build = source.build_command(recipe.runtime.name)
        return Check("docker", "fail", f"no image {recipe.runtime.name}", build)
    return Check("docker", "ok", f"image {recipe.runtime.name}, {found.stdout.strip()[:19]}")


def _engine(_: MilesRecipe) -> Iterator[Check]:
    version = _version("sglang")
    if version is None:
        yield Check("sglang", "fail", "not installed", "run inside Miles' image, which has it")
        return
    number = _numbers(version)
    if number < SGLANG_OLDEST:
        yield Check(
            "sglang",
            "fail",
            f"{version}: its chat completions give no token ids",
            "use sglang 0.5.18 or newer; 0.5.13 is the oldest that can work",
        )
        return
    where = next((w for least, w in SGLANG if number >= least), "meta_info triples")
    yield Check("sglang", "ok", f"{version}: output ids in {where}")


def _miles(recipe: MilesRecipe) -> Iterator[Check]:
    train = Path(recipe.cluster.sources) / "train.py"
    if train.is_file():
        yield Check("miles", "ok", str(train))
    else:
        yield Check(
            "miles",
            "fail",
            f"no {train}",
            "git clone https://github.com/radixark/miles, or run inside its image; then"
            " --miles FOLDER",
        )
    if shutil.which("ray"):
        yield Check("ray", "ok", _version("ray") or "on the path")
    else:
        yield Check(
            "ray", "fail", "no `ray` on the path", "run inside Miles' image, or pip install ray"
        )


def _gpus(recipe: MilesRecipe) -> Iterator[Check]:
    wanted = recipe.cluster.gpus
    fix = f"run on a node with {wanted} GPUs, or --set cluster.gpus=N"
    if shutil.which("nvidia-smi") is None:
        yield Check("GPUs", "fail", "no nvidia-smi on the path", fix)
        return
    listed = subprocess.run(("nvidia-smi", "-L"), capture_output=True, text=True, timeout=20)
    found = len(listed.stdout.splitlines()) if listed.returncode == 0 else 0
    if found < wanted:
        yield Check("GPUs", "fail", f"{found} GPUs, the recipe wants {wanted}", fix)
    else:
        yield Check("GPUs", "ok", f"{found} GPUs")


# ─── credentials, tasks, model ───────────────────────────────────────────


def _credentials(recipe: MilesRecipe) -> Iterator[Check]:
    if recipe.runtime.kind != "daytona":
        yield Check("credentials", "ok", f"none needed for {recipe.runtime.kind}")
        return
    path = Path(recipe.runtime.key_file).expanduser()
    write = f"write Daytona's key into it: install -D -m 600 /dev/stdin {path}"
    try:
        empty = not path.read_text(encoding="utf-8").strip()
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        seen = " (the variable is set here, but workers get paths only)"
        also = seen if os.environ.get(DAYTONA_KEY) else ""
        yield Check("credentials", "fail", f"{path}: {error.strerror}{also}", write)
        return
    if empty:
        yield Check("credentials", "fail", f"{path} is empty", write)
    elif mode & 0o077:
        saw = f"{path} can be read by others (mode {mode:o})"
        yield Check("credentials", "warn", saw, f"chmod 600 {path}")
    else:
        yield Check("credentials", "ok", f"{path} (only this path is passed on)")


def _env_package(recipe: MilesRecipe) -> Iterator[Check]:
    source = image_source(recipe.tasks.package)
    copied = ", ".join(source.copied) or "nothing"
    saw = f"{source.dockerfile.parent.name}/{source.dockerfile.name} copies {copied}"
    yield Check("env package", "ok", f"{saw}, serves with: {source.command}")


def _rows(recipe: MilesRecipe) -> Iterator[Check]:
    from cua_lab.tasks import load_tasks, read_rows

    if not Path(recipe.tasks.data).is_file():
        saw = f"no file {recipe.tasks.data}" if recipe.tasks.data else "no --data given"
        yield Check("rows", "fail", saw, _mint(recipe))
        return
    rows = read_rows(recipe.tasks.data)
    if not rows:
        yield Check("rows", "fail", f"{recipe.tasks.data} has no rows", _mint(recipe))
        return
    templates = {task.id: task for task in load_tasks(recipe.tasks.package)}
    problems = [
        f"row {number}: {problem}"
        for number, row in enumerate(rows, start=1)
        if (problem := _row_problem(row["metadata"]["hud_task"], templates))
    ]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        yield Check("rows", "fail", "; ".join(problems[:3]) + more, _mint(recipe))
        return
    yield from _row_numbers(recipe, [row["metadata"]["hud_task"] for row in rows], templates)


def _row_problem(hud_task: dict[str, Any], templates: dict[str, Any]) -> str:
    from cua_lab.tasks import with_args

    task = templates.get(hud_task["id"])
    if task is None:
        return f"no template {hud_task['id']!r}; the package has {', '.join(templates)}"
    if task.env != hud_task["env"]:
        return f"env {hud_task['env']!r}, but the package is {task.env!r}"
    try:
        with_args(task, hud_task["args"])
    except LabError as error:
        return str(error)
    return ""


def _row_numbers(
    recipe: MilesRecipe, tasks: list[dict[str, Any]], templates: dict[str, Any]
) -> Iterator[Check]:
    """Turns and screens that the rows ask for, against the recipe's."""
    fewest = min(_argument(task, templates, "turns") or recipe.agent.max_turns for task in tasks)
    screens = {
        (_argument(task, templates, "width"), _argument(task, templates, "height"))
        for task in tasks
    }
    wanted = (recipe.screen.width, recipe.screen.height)
    wrong = []
    if fewest < recipe.agent.max_turns:
        wrong.append(f"rows end after {fewest} turns, the recipe has {recipe.agent.max_turns}")
    if screens - {wanted, (None, None)}:
        odd = next(iter(screens - {wanted, (None, None)}))
        wrong.append(f"rows have screens of {odd[0]}x{odd[1]} px, costs are for {wanted}")
    if len(tasks) < recipe.train.prompts:
        wrong.append(f"{len(tasks)} rows, a step takes {recipe.train.prompts}")
    if wrong:
        yield Check("rows", "warn", "; ".join(wrong), _mint(recipe))
    else:
        yield Check("rows", "ok", f"{len(tasks)} rows, all minted by {recipe.tasks.package}")


def _argument(task: dict[str, Any], templates: dict[str, Any], name: str) -> Any:
    parameter = templates[task["id"]]._env.templates[task["id"]].sig.parameters.get(name)
    return task["args"].get(name, parameter.default if parameter is not None else None)


def _mint(recipe: MilesRecipe) -> str:
    args = {
        "turns": recipe.agent.max_turns,
        "width": recipe.screen.width,
        "height": recipe.screen.height,
    }
    groups = recipe.train.prompts * recipe.train.rollouts
    return (
        f"cua-lab data mint {recipe.tasks.data or 'rows.jsonl'} --package {recipe.tasks.package}"
        f" --slug SLUG --seeds 0:{groups} --args '{json.dumps(args)}'"
    )


def _model(recipe: MilesRecipe) -> Iterator[Check]:
    if not recipe.model.path:
        name = "Qwen3-VL-4B-Instruct"
        fix = f"hf download Qwen/{name} --local-dir models/{name}; --model models/{name}"
        yield Check("model", "fail", "no --model given", fix)
        return
    folder = Path(recipe.model.path)
    missing = [n for n in ("config.json", "preprocessor_config.json") if not (folder / n).is_file()]
    if not any(folder.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        fix = "hf download MODEL --local-dir FOLDER, whole"
        yield Check("model", "fail", f"{folder} lacks {', '.join(missing)}", fix)
        return
    family = _family(folder)
    yield Check("model", "ok", f"{folder}: {family}, {mib(_weights(folder))}")
    yield _parser(recipe, folder)
    yield _space(recipe, family)


def _weights(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _parser(recipe: MilesRecipe, folder: Path) -> Check:
    parser = recipe.model.tool_call_parser
    files = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
    texts = [(folder / name).read_text("utf-8") for name in files if (folder / name).is_file()]
    mark = PARSERS.get(parser)
    if mark is None:
        known = ", ".join(PARSERS)
        saw = f"parser {parser!r} is not known to fit any model here"
        return Check("tool calls", "warn", saw, f"--set model.tool_call_parser={known}")
    if not any(mark in text for text in texts):
        saw = f"the chat template never says {mark}, which the parser {parser} looks for"
        return Check(
            "tool calls",
            "fail",
            saw,
            "choose the parser of the model's family, or an Instruct model",
        )
    return Check("tool calls", "ok", f"the template says {mark}, sglang's {parser} reads it")


def _space(recipe: MilesRecipe, family: str) -> Check:
    from cua_lab.policy.policy import COORDINATES

    space, expected = recipe.tool.coordinate_space, COORDINATES.get(family)
    if expected is None:
        fix = f"use one of {', '.join(COORDINATES)}"
        return Check("coordinates", "fail", f"no known space for {family!r}", fix)
    if space != expected:
        saw = f"the tool speaks {space}, {family} was trained on {expected}"
        return Check("coordinates", "fail", saw, f'--set tool.coordinate_space="{expected}"')
    return Check("coordinates", "ok", f"{family} speaks {space}")


# ─── arithmetic ──────────────────────────────────────────────────────────


def _costs(recipe: MilesRecipe) -> Costs:
    """With the model's own tokenizer and image geometry where its folder has them."""
    from cua_lab.policy.vision import QWEN2_5_VL, QWEN3_VL

    folder = Path(recipe.model.path)
    geometry = QWEN2_5_VL if recipe.model.path and _family(folder) == "qwen2_5_vl" else QWEN3_VL
    if not recipe.model.path or not (folder / "tokenizer.json").is_file():
        return costs_of(recipe, geometry=geometry)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return costs_of(
        recipe, geometry=geometry, count_tokens=lambda text: len(tokenizer.encode(text).ids)
    )


def _family(folder: Path) -> str:
    config = folder / "config.json"
    if not config.is_file():
        return "unknown"
    return str(json.loads(config.read_text(encoding="utf-8")).get("model_type"))


def _context(recipe: MilesRecipe) -> Iterator[Check]:
    costs, context = _costs(recipe), recipe.context
    limit = min(context.limit, context.response + costs.prompt_tokens)
    saw = (
        f"{costs.frames} frames x {costs.frame_tokens} tokens and {recipe.agent.max_turns} answers:"
        f" {costs.typical_tokens} tokens typically, {costs.longest_tokens} at most, of {limit}"
    )
    fewer = "fewer turns, a narrower screenshot or a larger context.limit"
    if costs.typical_tokens > limit:
        yield Check("context", "fail", saw, f"most episodes would not fit: {fewer}")
    elif costs.longest_tokens > limit:
        yield Check("context", "warn", saw, f"talkative episodes lose their last turns: {fewer}")
    else:
        yield Check("context", "ok", saw)


def _batch(recipe: MilesRecipe) -> Iterator[Check]:
    ranks, episodes = recipe.cluster.nodes * recipe.cluster.gpus, recipe.train.episodes
    saw = f"{recipe.train.prompts} x {recipe.train.samples} = {episodes} episodes on {ranks} ranks"
    if episodes % ranks:
        yield Check("batch", "fail", saw, "make prompts x samples a multiple of the ranks")
    elif recipe.agent.after_rewrite == "split":
        saw += "; a split episode becomes several samples"
        fix = "Miles cuts the batch to a multiple of its size: --set agent.after_rewrite=truncate"
        yield Check("batch", "warn", saw, fix)
    else:
        yield Check("batch", "ok", f"{saw}, {episodes // ranks} each")


def _timeout(recipe: MilesRecipe) -> Iterator[Check]:
    costs, minutes = _costs(recipe), recipe.cluster.timeout_minutes
    saw = (
        f"{mib(costs.batch_bytes)} of pixels a batch take {costs.transfer_minutes:.0f} minutes at"
        f" the published run's pace; collectives wait {minutes}"
    )
    if costs.transfer_minutes > minutes:
        fix = f"--set cluster.timeout_minutes={2 * int(costs.transfer_minutes)}, or smaller frames"
        yield Check("timeout", "fail", saw, fix)
    else:
        yield Check("timeout", "ok", saw)


def _disk(recipe: MilesRecipe) -> Iterator[Check]:
    if not recipe.cluster.output:
        fix = "--output FOLDER, on storage that outlives the node"
        yield Check("disk", "fail", "no --output given", fix)
        return
    folder = Path(recipe.cluster.output).resolve()
    standing = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(standing).free
    one = checkpoint_bytes(_weights(Path(recipe.model.path))) if recipe.model.path else 0
    dumps = _costs(recipe).batch_bytes * recipe.train.rollouts
    need = one * checkpoints(recipe) + dumps
    saw = (
        f"{mib(free)} free at {standing}; {checkpoints(recipe)} checkpoints of {mib(one)} and"
        f" {mib(dumps)} of dumps are {mib(need)}"
    )
    if free < need:
        yield Check("disk", "fail", saw, "free some, choose another --output, or save less often")
    else:
        yield Check("disk", "ok", saw)


def _trainer(recipe: MilesRecipe) -> Iterator[Check]:
    apart = [c for c in compare(recipe) if not c.agrees]
    if apart:
        saw = "; ".join(f"{c.name}: {c.ours} here, {c.miles} there" for c in apart)
        yield Check("our trainer", "warn", saw, "another algorithm than the lessons': on purpose?")
    else:
        yield Check("our trainer", "ok", "clip, KL, group advantages and averaging mean the same")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    from packaging.version import Version

    return Version(version).release
