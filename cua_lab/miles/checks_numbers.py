"""Preflight: the model's folder, and whether the recipe's numbers go together.

Each function yields its `Check`s.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from cua_lab.checks import Check
from cua_lab.miles.agreement import compare
from cua_lab.miles.cost import Costs, checkpoint_bytes, checkpoints, costs_of, mib
from cua_lab.miles.recipe import MilesRecipe
from cua_lab.policy.policy import COORDINATES
from cua_lab.policy.vision import QWEN2_5_VL, QWEN3_VL

PARSERS = {"qwen25": "<tool_call>", "qwen": "<tool_call>", "hermes": "<tool_call>"}
"""sglang's parser -> what the chat template must contain."""
DUMPS = 2
"""Miles writes a step's pixels as rollout data and once more as train data of its ranks."""


def model(recipe: MilesRecipe) -> Iterator[Check]:
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
    texts = [(folder / name).read_text("utf-8-sig") for name in files if (folder / name).is_file()]
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
    space, expected = recipe.tool.coordinate_space, COORDINATES.get(family)
    if expected is None:
        fix = f"use one of {', '.join(COORDINATES)}"
        return Check("coordinates", "fail", f"no known space for {family!r}", fix)
    if space != expected:
        saw = f"the tool speaks {space}, {family} was trained on {expected}"
        return Check("coordinates", "fail", saw, f'--set tool.coordinate_space="{expected}"')
    return Check("coordinates", "ok", f"{family} speaks {space}")


def _costs(recipe: MilesRecipe) -> Costs:
    """With the model's own tokenizer and image geometry where its folder has them."""
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
    return str(json.loads(config.read_text(encoding="utf-8-sig")).get("model_type"))


def context(recipe: MilesRecipe) -> Iterator[Check]:
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


def batch(recipe: MilesRecipe) -> Iterator[Check]:
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


def timeout(recipe: MilesRecipe) -> Iterator[Check]:
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


def disk(recipe: MilesRecipe) -> Iterator[Check]:
    if not recipe.cluster.output:
        fix = "--output FOLDER, on storage that outlives the node"
        yield Check("disk", "fail", "no --output given", fix)
        return
    folder = Path(recipe.cluster.output).resolve()
    standing = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(standing).free
    one = checkpoint_bytes(_weights(Path(recipe.model.path))) if recipe.model.path else 0
    dumps = DUMPS * _costs(recipe).batch_bytes * recipe.train.rollouts
    need = one * checkpoints(recipe) + dumps
    saw = (
        f"{mib(free)} free at {standing}; {checkpoints(recipe)} checkpoints of {mib(one)} and"
        f" {mib(dumps)} of dumps are {mib(need)}"
    )
    if free < need:
        yield Check("disk", "fail", saw, "free some, choose another --output, or save less often")
    else:
        yield Check("disk", "ok", saw)


def trainer(recipe: MilesRecipe) -> Iterator[Check]:
    apart = [c for c in compare(recipe) if not c.agrees]
    if apart:
        saw = "; ".join(f"{c.name}: {c.ours} here, {c.miles} there" for c in apart)
        yield Check("our trainer", "warn", saw, "another algorithm than the lessons': on purpose?")
    else:
        yield Check("our trainer", "ok", "clip, KL, group advantages and averaging mean the same")
