"""The SFT job: a file of samples makes a checkpoint that any engine serves.

    runs/<name>/config.yaml, metrics.jsonl, summary.json   as the main job leaves them
                checkpoint/    to go on from
                adapter/       with LoRA: the adapter alone, as `peft` loads it
                model/         the export: a checkpoint folder, merged, with `prompt_format.json`
                tensorboard/   where the recipe asks for it

Invariant: `model/` is there exactly when the training has ended; a run that was stopped anywhere
goes on from its last checkpoint with the same bits.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from cua_lab import files
from cua_lab.computer.config import ACTIONS
from cua_lab.dataset.prompt_format import PromptFormat, prompt_format_of
from cua_lab.play.agent import SHORT_SYSTEM_PROMPT, SYSTEM_PROMPT
from cua_lab.policy.policy import build_policy, load_policy
from cua_lab.policy.template import chat_template
from cua_lab.recipes.loader import dump_recipe, to_tree
from cua_lab.recipes.sft_recipe import AskSettings, SftRecipe
from cua_lab.records import FORMAT, make_step, step_record
from cua_lab.run.bars import bar
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import machine, versions
from cua_lab.run.memory import peak_rss_gib
from cua_lab.training.checkpoint import (
    latest_checkpoint,
    load_checkpoint,
    prune_checkpoints,
    remove_checkpoints,
    save_checkpoint,
)
from cua_lab.training.finetune import Finetune
from cua_lab.training.lora import attach
from cua_lab.training.precision import precision_of
from cua_lab.training.sft_data import (
    ConversationReader,
    SftDataset,
    corpus_of_rows,
    read_training_rows,
)
from cua_lab.training.trackers import Trackers

if TYPE_CHECKING:
    from torch import Tensor

    from cua_lab.policy.policy import Policy
    from cua_lab.training.lora import Adapter
    from cua_lab.training.warmup import SftMetrics


def run_sft(
    recipe: SftRecipe,
    file: Path,
    folder: RunFolder,
    *,
    root: Path | None = None,
    on_step: Callable[[SftMetrics], None] | None = None,
) -> dict[str, Any]:
    """Train, or go on; returns the summary that it wrote. `root`: where the screenshots are."""
    import torch

    torch.set_num_threads(recipe.model.threads)
    started = perf_counter()
    trainer, prompt_format, adapter = prepare(recipe, file, root=root)
    with folder.begin() as held:
        return _train(recipe, file, held, trainer, prompt_format, adapter, started, on_step)


def _train(
    recipe: SftRecipe,
    file: Path,
    folder: RunFolder,
    trainer: Finetune,
    prompt_format: PromptFormat,
    adapter: Adapter | None,
    started: float,
    on_step: Callable[[SftMetrics], None] | None,
) -> dict[str, Any]:
    saved = latest_checkpoint(folder.checkpoints)
    if saved is not None:
        load_checkpoint(saved, trainer, weights=adapter)
    remove_checkpoints(folder.checkpoints, after=trainer.state.step)
    prune_checkpoints(folder.checkpoints, recipe.train.keep_checkpoints)
    folder.write("config.yaml", dump_recipe(recipe))
    folder.keep(lambda record: record["step"] <= trainer.state.step)
    trackers = Trackers(recipe.track, folder.path, to_tree(recipe))
    every, keep = recipe.train.checkpoint_every, recipe.train.keep_checkpoints

    try:
        with (
            _interrupts() as asked,
            bar("SFT", trainer.steps, "step", initial=trainer.state.step) as progress,
        ):
            for metrics in trainer:
                values = _values(metrics)
                line = make_step(_record(recipe, metrics) | values)
                folder.append("metrics.jsonl", step_record(line))
                trackers.log(metrics.step, values)
                if asked.is_set() or (every and metrics.step % every == 0):
                    save_checkpoint(folder.checkpoints, trainer, keep=keep, weights=adapter)
                if asked.is_set():
                    raise KeyboardInterrupt
                progress.update()
                progress.set_postfix(loss=f"{metrics.loss:.3f}", refresh=False)
                if on_step is not None:
                    on_step(metrics)
    finally:
        trackers.close()
    save_checkpoint(folder.checkpoints, trainer, keep=keep, weights=adapter)
    summary = _summary(recipe, trainer, file, perf_counter() - started)
    export(trainer.policy, prompt_format, folder.path, adapter, probe=trainer.probe)
    folder.write_json("summary.json", summary)
    return summary


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Set by the first Ctrl-C, so that an update is not cut in the middle; a second one cuts."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def heard(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, before)
        asked.set()

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def prepare(
    recipe: SftRecipe, file: Path, *, root: Path | None = None
) -> tuple[Finetune, PromptFormat, Adapter | None]:
    """Everything a recipe names, checked: all mistakes before any work."""
    import torch

    precision = precision_of(recipe.model.device, recipe.model.precision, section="model")
    checkpoint = recipe.policy.checkpoint
    policy = None
    if checkpoint is not None:
        policy = load_policy(checkpoint, dtype=precision.stored(frozen=recipe.lora is not None))
        if recipe.model.chat_template == "lab":
            policy.tokenizer.chat_template = chat_template()
    prompt_format = _prompt_format_for(policy, recipe.ask)
    rows = read_training_rows(file, prompt_format, space=recipe.data.space)
    reader = ConversationReader(rows, prompt_format, recipe.data, root or file.parent)
    if policy is None:
        policy = build_policy(
            recipe.policy, corpus_of_rows(reader), seed=recipe.seed, name=recipe.name
        )
    data = SftDataset(reader, policy)
    data.example(0)  # a template without tools, a missing screenshot
    torch.manual_seed(recipe.seed)  # of LoRA's first weights and of its dropout
    adapter = attach(policy, recipe.lora) if recipe.lora is not None else None
    trainer = Finetune(
        policy,
        data,
        recipe.train,
        seed=recipe.seed,
        precision=precision,
        held_out=range(max(0, len(rows) - recipe.data.held_out), len(rows)),
        gradient_checkpointing=recipe.model.gradient_checkpointing,
    )
    return trainer, prompt_format, adapter


def export(
    policy: Policy,
    prompt_format: PromptFormat,
    folder: Path,
    adapter: Adapter | None,
    *,
    probe: Callable[[], Tensor] | None = None,
) -> Path:
    """Write `model/`: merged, beside its place and renamed into it.

    `probe` gives log-probabilities of one row: those of the merged policy must be those of the
    adapted one, or nothing is exported but the adapter.
    """
    if adapter is not None:
        with files.writing_folder(folder / "adapter") as beside:
            adapter.save(beside)
        adapter.merge_checked(probe) if probe is not None else adapter.merge()
    policy.model.to("cpu")
    with files.writing_folder(folder / "model") as beside:
        policy.save(beside)
        prompt_format.save(beside)
    return folder / "model"


def _prompt_format_for(policy: Policy | None, settings: AskSettings) -> PromptFormat:
    prompts = {"long": SYSTEM_PROMPT, "short": SHORT_SYSTEM_PROMPT, "none": None}
    system = prompts[settings.system]
    if policy is not None:
        return prompt_format_of(policy, system=system, actions=settings.actions)
    return PromptFormat(system=system, actions=settings.actions or ACTIONS)


def _values(metrics: SftMetrics) -> dict[str, Any]:
    return {
        "loss": metrics.loss,
        "held_out_loss": metrics.check,
        "grad_norm": metrics.grad_norm,
        "lr": metrics.lr,
        "tokens": metrics.tokens,
    }


def _record(recipe: SftRecipe, metrics: SftMetrics) -> dict[str, Any]:
    """As the main job records its warm-up, so that a report reads both."""
    return {"stage": recipe.name, "task": "sft", "phase": "sft", "step": metrics.step}


def _summary(recipe: SftRecipe, trainer: Finetune, file: Path, seconds: float) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "recipe": recipe.name,
        "seed": recipe.seed,
        "data": file.name,
        "steps": trainer.state.step,
        "parameters": trainer.policy.parameters,
        "learning": sum(p.numel() for p in trainer.policy.model.parameters() if p.requires_grad),
        "lora": None if recipe.lora is None else asdict(recipe.lora),
        "held_out_loss": trainer.held_out_loss() if recipe.data.held_out else None,
        "versions": versions(),
        "machine": machine(recipe.model.threads),
        "seconds": {"total": seconds},
        "peak_rss_gib": peak_rss_gib(),
    }
