"""One stage of a run: a policy is warmed up on demonstrations, improved by GRPO, and measured.

    warm-up ──▶ measured (before) ──▶ GRPO steps ──▶ measured (after) ──▶ ablations

Each phase leaves its result in `progress.json`, and GRPO a checkpoint every few steps, so that a
run which was stopped anywhere goes on from there. Invariant: what a stage writes to
`metrics.jsonl` and `episodes.jsonl` is a function of recipe and seed; times go to `timings.jsonl`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from cua_lab import files
from cua_lab.dataset.prompt_format import prompt_format_of
from cua_lab.demonstrators import players_of
from cua_lab.demonstrators.recorder import Recorder
from cua_lab.play.ablation import blank, screens_of
from cua_lab.play.episode import Episode
from cua_lab.play.episode_samples import as_failed, episode_samples
from cua_lab.play.reading import transcripts
from cua_lab.play.scripted import in_turn
from cua_lab.play.worker import Plan
from cua_lab.policy.policy import load_policy
from cua_lab.records import (
    EpisodeRow,
    Step,
    TurnRow,
    episode_row_record,
    make_step,
    read_episode,
    step_record,
    to_json,
)
from cua_lab.run.bars import bar
from cua_lab.run.engines import open_engine
from cua_lab.run.folder import RunFolder
from cua_lab.run.gate_record import gate_of, gate_record, risky_calls
from cua_lab.run.graded import GradedSteps, check_graded
from cua_lab.run.measure import Measured, measure
from cua_lab.run.pictured import by_turn, kept_after, kept_before, worth
from cua_lab.run.progress import Progress, StageProgress
from cua_lab.run.recovery import whole_warm_up, write_manifest
from cua_lab.run.stage_context import StageContext, demonstrator_of, new_policy
from cua_lab.run.tally import Tally
from cua_lab.run.trainers import open_trainer, stored_as, to_its_device
from cua_lab.safety.redaction import redact
from cua_lab.seeds import derive_seed
from cua_lab.stitching.codec import codec_from_tokenizer
from cua_lab.training.checkpoint import latest_checkpoint, save_checkpoint
from cua_lab.training.ranks import ALONE, Ranks
from cua_lab.training.trainer import advantages_of
from cua_lab.training.warmup import sft_steps
from cua_lab.viz.frames import screenshot_frames
from cua_lab.viz.payload import viewer_payload
from cua_lab.waiting import progressed

if TYPE_CHECKING:
    from cua_lab.dataset.prompt_format import PromptFormat
    from cua_lab.demonstrators.demos import Demonstrator
    from cua_lab.policy.policy import Policy
    from cua_lab.recipes.settings import SftSettings
    from cua_lab.run.engines import AnyEngine, AnyWorker
    from cua_lab.stitching.codec import TableCodec
    from cua_lab.stitching.sample import Sample
    from cua_lab.training.metrics import StepMetrics
    from cua_lab.training.trainer import GRPOTrainer


ROLLOUT_PARTS = ("prefill_s", "prefill_tokens", "decode_s", "decode_tokens", "env_s")
"""Of a step, in timings.jsonl: what the engine did, and the rest of the time it took to play. A
server outside does not say what it did: its time is in the rest."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Episodes that wait to be learnt from."""

    episodes: tuple[Episode, ...]
    weights: int
    """The step whose weights played them."""


@dataclass(slots=True)
class StageRun:
    """The moving parts of a stage; `run` plays it from wherever it stands."""

    context: StageContext
    folder: RunFolder
    progress: Progress
    policy: Policy
    engine: AnyEngine
    worker: AnyWorker
    codec: TableCodec
    demonstrator: Demonstrator | None
    """`None` where nothing is imitated."""
    ranks: Ranks = ALONE
    """The processes that learn with this one."""
    eval_screenshots: list[tuple[bytes, ...]] = field(default_factory=list)
    """Screenshots of the last evaluation's episodes."""

    @classmethod
    def open(
        cls, context: StageContext, folder: RunFolder, progress: Progress, ranks: Ranks = ALONE
    ) -> StageRun:
        """Build the stage's policy and engine, from its warm-up where there is one."""
        # Whatever draws from torch's own generator draws the same in whichever process this is.
        torch.manual_seed(derive_seed(context.seed, context.stage.name, "torch"))
        audit = folder.path / "audit" / f"{context.stage.name}.jsonl"
        context = context.gated(gate_of(context.stage.safety, audit))
        state = progress.stage(context.stage.name)
        demonstrator = demonstrator_of(context)
        kept = whole_warm_up(folder, context.stage.name) if state.warm else None
        dtype = stored_as(context.stage)
        policy = (
            load_policy(kept, dtype=dtype) if kept else new_policy(context, demonstrator, dtype)
        )
        to_its_device(context.recipe, context.stage, policy)
        pushes = folder.path / "pushes" / context.stage.name
        engine, worker = open_engine(context, policy, pushes)
        codec = codec_from_tokenizer(policy.tokenizer)
        return cls(context, folder, progress, policy, engine, worker, codec, demonstrator, ranks)

    @property
    def state(self) -> StageProgress:
        return self.progress.stage(self.context.stage.name)

    @property
    def tally(self) -> Tally:
        return self.progress.tally

    async def run(self) -> None:
        """Play what is left of the stage."""
        try:
            if not self.state.warm:
                await self.warm_up()
            if self.state.before is None:
                self.state.before = await self._measure("eval_before")
                self._save()
            if self.state.fallback is None:
                self.state.fallback = self.progress.record(self.folder)
                self._save()
            await self._grpo()
            if self.state.after is None:
                self.state.after = await self._measure("eval_after")
                self._save()
            for name in self.context.stage.eval.ablations:
                if name not in self.state.ablations:
                    self.state.ablations[name] = await self._ablation(name)
                    self._save()
            self.state.fallback = None
            self._save()
        finally:
            self.engine.close()

    # ─── warm-up ──────────────────────────────────────────────────────

    async def warm_up(self) -> None:
        """Learn from demonstrations, and save the policy that did."""
        stage, sft = self.context.stage, self.context.stage.sft
        if sft.steps:
            await self._imitate(sft)
        self.engine.weights_updated(f"{stage.name}-0")
        with files.writing_folder(self.folder.warm_up(stage.name)) as warm:
            self.policy.save(warm)
            self._prompt_format().save(warm)
            write_manifest(warm)
        self.state.warm = True
        self._save()

    async def _imitate(self, sft: SftSettings) -> None:
        stage, demonstrator = self.context.stage, self.demonstrator
        assert demonstrator is not None  # `demonstrator_of` raises where there are steps and nobody
        seed = derive_seed(self.context.seed, stage.name, "sft")
        await self._record_demonstrations()
        with bar(f"{stage.name}: warm-up", sft.steps, "step") as progress:
            lanes = self.context.recipe.run.lanes
            steps = sft_steps(self.policy, demonstrator, sft, seed=seed, lanes=lanes)
            for metrics in steps:
                self.tally.add_seconds(sft=metrics.seconds)
                self.tally.add_tokens(sft=metrics.sequence_tokens)
                check = await self._check(metrics.step) if _due(metrics.step, sft) else None
                self._record_sft(metrics, check)
                progressed()
                progress.update()
                shown = {} if check is None else {"success": f"{check:.2f}"}
                progress.set_postfix(loss=f"{metrics.loss:.3f}", **shown, refresh=False)
                if check is not None and check >= (sft.stop_at or 1):
                    steps.cool_down()
                await asyncio.sleep(0)  # where a Ctrl-C gets in

    async def _record_demonstrations(self) -> None:
        """On a real browser they take minutes, which should be seen."""
        if not isinstance(self.demonstrator, Recorder):
            return
        started, count = perf_counter(), self.context.stage.sft.demonstrations
        with bar(f"{self.context.stage.name}: demonstrations", count, "episode") as progress:
            await self.demonstrator.fill(count, progress.update)
        self.tally.add_seconds(sft=perf_counter() - started)

    async def _check(self, step: int) -> float | None:
        """The success rate now, on episodes of their own."""
        self.engine.weights_updated(f"sft-{step}")
        count = self.context.stage.sft.check_episodes
        episodes = await self._play(self.context.fresh_plans("sft-check", count), part="sft")
        success = measure(episodes).success
        return None if success is None else success.mean

    def _record_sft(self, metrics: Any, check: float | None) -> None:
        record = self._record("sft", metrics.step)
        step = Step(
            **record,
            loss=metrics.loss,
            grad_norm=metrics.grad_norm,
            lr=metrics.lr,
            tokens=metrics.tokens,
            success=check,
        )
        self.folder.append("metrics.jsonl", step_record(step))
        self.folder.append("timings.jsonl", record | {"train_s": metrics.seconds})

    # ─── GRPO ─────────────────────────────────────────────────────────

    async def _grpo(self) -> None:
        stage, every = self.context.stage, self.context.recipe.run.checkpoint_every
        warm = self.folder.warm_up(stage.name)
        trainer = open_trainer(self.context.recipe, stage, self.policy, self.ranks, warm)
        saved = latest_checkpoint(self._checkpoints)
        if saved is not None:
            trainer.load(saved)
        self._serve(trainer)
        ahead: Ahead | None = None
        steps = stage.grpo.steps
        graded = GradedSteps(self.context.recipe.run.stop_after_ungraded_steps)
        with bar(f"{stage.name}: GRPO", steps, "step", initial=trainer.state.step) as progress:
            while trainer.state.step < steps:
                try:
                    shown, ahead = await self._grpo_step(trainer, graded, ahead)
                except asyncio.CancelledError:
                    self._checkpoint(trainer)
                    raise
                if every and trainer.state.step % every == 0 and trainer.state.step < steps:
                    self._checkpoint(trainer)
                progress.update()
                progress.set_postfix(shown, refresh=False)
        if saved is None or trainer.state.step > self.state.step:
            self._checkpoint(trainer)
        trainer.close()

    def _serve(self, trainer: GRPOTrainer) -> None:
        """The engine goes on with the weights as they are now."""
        if trainer.policy is not self.policy:
            trainer.gather()
            trainer.learner.take_over(self.policy)
        self.engine.weights_updated(f"{self.context.stage.name}-{trainer.state.step}")

    async def _train(
        self, trainer: GRPOTrainer, samples: Sequence[Sample], lag: int
    ) -> tuple[StepMetrics, Ahead | None]:
        """One step; with `grpo.ahead` the next step's episodes are played meanwhile, by the weights
        from before it."""
        step, grpo = trainer.state.step, self.context.stage.grpo
        if not grpo.ahead or step + 1 >= grpo.steps:
            return trainer.step(samples, stale=lag > 0), None
        threads = self.context.recipe.run.threads
        with ThreadPoolExecutor(1, "training", torch.set_num_threads, (threads,)) as beside:
            # Left by a Ctrl-C, too, only when the step is done: a checkpoint follows.
            training = beside.submit(trainer.step, samples, stale=lag > 0)
            episodes = await self._play(self.context.training_plans(step + 1))
            return await asyncio.wrap_future(training), Ahead(tuple(episodes), step)

    async def _grpo_step(
        self, trainer: GRPOTrainer, graded: GradedSteps, ahead: Ahead | None
    ) -> tuple[dict[str, str], Ahead | None]:
        started, step, before = perf_counter(), trainer.state.step, self.tally.parts()
        if ahead is None:
            ahead = Ahead(tuple(await self._play(self.context.training_plans(step))), step)
        episodes, lag = list(ahead.episodes), step - ahead.weights
        made = [self.samples(episode) for episode in episodes]
        samples = [sample for sequences in made for sample in sequences]
        episodes = self._judged(episodes, made)
        graded.see(episodes, f"{self.context.stage.name}, GRPO step {step + 1}")
        metrics, following = await self._train(trainer, samples, lag)
        progressed()
        self._serve(trainer)
        measured = measure(episodes)
        self.tally.add_samples(samples)
        self.tally.add_step(metrics)
        record = self._record("grpo", metrics.step)
        found = {
            "success": _mean(measured.success),
            "valid_tool_calls": _mean(measured.valid_tool_calls),
            "keys_per_turn": _mean(measured.keys_per_turn),
            "cells_read": _mean(measured.cells_read),
            "screens_read": _mean(measured.screens_read),
            **gate_record(episodes),
        } | ({"staleness": lag} if self.context.stage.grpo.ahead else {})
        line = make_step(record | metrics.record(timing=False) | found)
        self.folder.append("metrics.jsonl", step_record(line))
        spent = self.tally.parts_since(before)
        times = {name: spent.get(name) or None for name in ROLLOUT_PARTS} | {
            "turns": sum(len(episode.turns) for episode in episodes),
            "train_s": metrics.seconds,
            "step_s": perf_counter() - started,
        }
        self.folder.append("timings.jsonl", record | times)
        self._record_episodes(episodes, "grpo", metrics.step)
        if metrics.step == self.context.stage.grpo.steps:
            self._save_viewer(episodes, samples)
        share = measured.valid_tool_calls
        valid = "?" if share is None else f"{share.mean:.2f}"
        return {"reward": f"{metrics.reward_mean:.3f}", "valid": valid}, following

    def _judged(self, episodes: list[Episode], made: Sequence[Sequence[Sample]]) -> list[Episode]:
        """The episodes for the records: one that training wrote off is a failed one."""
        judged = [
            as_failed(episode, sequences[0].reason) if sequences[0].status == "failed" else episode
            for episode, sequences in zip(episodes, made, strict=True)
        ]
        self.tally.correct_episodes(episodes, judged)
        return judged

    def samples(self, episode: Episode) -> list[Sample]:
        """What training gets of an episode; a failed one becomes its write-off."""
        return episode_samples(
            episode,
            self.codec,
            self.policy.vision,
            merge=self.policy.merge,
            after_rewrite=self.context.stage.agent.after_rewrite,
        )

    def _save_viewer(self, episodes: Sequence[Episode], samples: Sequence[Sample]) -> None:
        """The best and the worst of the last step's first group, token by token."""
        advantages = advantages_of(samples, self.context.stage.grpo).values
        # An episode that typed a secret is not shown: its tokens spell it.
        kept = {episode.id for episode in episodes if not episode.secrets}
        shown = [s.counts and s.group == samples[0].group and s.episode in kept for s in samples]
        group = [i for i, wanted in enumerate(shown) if wanted]
        if not group:
            return
        ends = sorted({max(group, key=_reward(samples)), min(group, key=_reward(samples))})
        pictures = {episode.id: screenshot_frames(episode) for episode in episodes}
        payload = viewer_payload(
            [samples[i] for i in ends],
            self.codec,
            images=[
                [pictures[samples[i].episode][n][0] for n in samples[i].screenshots] for i in ends
            ],
            advantages=[advantages[i] for i in ends],
            title=f"{self.context.stage.name}: two members of the last group",
        )
        self.folder.write_json("viewer.json", payload)

    # ─── measuring ────────────────────────────────────────────────────

    async def _measure(self, phase: str) -> Measured:
        plans = self.context.fresh_plans("eval", self.context.stage.eval.episodes)
        with self._episodes_bar(phase, len(plans)):
            episodes = await self._play(plans, part="eval")
        self._record_episodes(episodes, phase, None, pictured=self._pictured(episodes, phase))
        check_graded(episodes, f"{self.context.stage.name}, {phase}")
        self.eval_screenshots = [episode.screenshots for episode in episodes if episode.screenshots]
        return measure(episodes)

    async def _ablation(self, name: str) -> Measured:
        """The same fresh episodes, but blind, looking at another episode, or played at random."""
        plans = self.context.fresh_plans("eval", self.context.stage.eval.episodes)
        with self._episodes_bar(name, len(plans)):
            if name == "random":
                episodes = await self._play_random(plans)
            elif name == "blind":
                episodes = await self._play_blind(plans)
            elif name == "blank":
                episodes = await self._play(plans, part="eval", screens=lambda _: blank)
            else:
                others = await self._other_screens(plans)
                episodes = await self._play(
                    plans, part="eval", screens=lambda plan: screens_of(others[plan.id])
                )
        self._record_episodes(episodes, f"ablation_{name}", None)
        check_graded(episodes, f"{self.context.stage.name}, ablation {name}")
        return measure(episodes)

    async def _other_screens(self, plans: Sequence[Plan]) -> dict[str, tuple[bytes, ...]]:
        """For each plan the screenshots of another one, as the trained policy met them.

        A resumed run has not kept them; playing the same plans again gives the same ones.
        """
        if not self.eval_screenshots:
            episodes = await self._play(plans, part="eval")
            self.eval_screenshots = [
                episode.screenshots for episode in episodes if episode.screenshots
            ]
        screens = self.eval_screenshots
        order = list(range(len(screens)))
        Random(derive_seed(self.context.seed, "shuffle")).shuffle(order)
        place = {index: position for position, index in enumerate(order)}
        return {
            plan.id: screens[order[(place[index % len(screens)] + 1) % len(screens)]]
            for index, plan in enumerate(plans)
        }

    async def _play_random(self, plans: Sequence[Plan]) -> list[Episode]:
        stage = self.context.stage
        players = players_of(self.context.package)
        keys = _mean(self.state.after.keys_per_turn) if self.state.after else None
        return await self.worker.play_scripted(
            plans,
            lambda plan: players.random_player(
                plan.task.id,
                seed=plan.seed,
                keys_per_turn=keys or 1.0,
                max_keys=stage.tool.max_keys_per_call,
                space=stage.tool.coordinate_space,
            ),
        )

    async def _play_blind(self, plans: Sequence[Plan]) -> list[Episode]:
        """The same best fixed actions in every episode."""
        stage = self.context.stage
        players = players_of(self.context.package)
        found = {
            variant.name: players.best_blind(
                variant.template,
                variant.args,
                max_keys=stage.tool.max_keys_per_call,
                turns=variant.args.get("turns", stage.agent.max_turns),
            ).actions
            for variant in self.context.variants
        }
        return await self.worker.play_scripted(
            plans, lambda plan: in_turn(found[plan.task.slug or ""])
        )

    # ─── shared ───────────────────────────────────────────────────────

    async def _play(
        self, plans: Sequence[Plan], *, part: str = "env", screens: Any = None
    ) -> list[Episode]:
        """Play and account: the engine's seconds are its own, the rest is the part's."""
        stats = self.engine.stats
        started = perf_counter()
        before = (stats.prefill_s + stats.vision_s, stats.decode_s)
        tokens = (stats.prefill_tokens, stats.decode_tokens)
        episodes = await self.worker.play(plans, screens=screens)
        prefill = stats.prefill_s + stats.vision_s - before[0]
        decode = stats.decode_s - before[1]
        elapsed = perf_counter() - started
        if part == "env":
            self.tally.add_seconds(prefill=prefill, decode=decode, env=elapsed - prefill - decode)
            self.tally.add_tokens(
                prefill=stats.prefill_tokens - tokens[0], decode=stats.decode_tokens - tokens[1]
            )
            self.tally.add_episodes(episodes)
        else:
            self.tally.add_seconds(**{part: elapsed})
        return episodes

    def _episodes_bar(self, what: str, count: int) -> Any:
        progress = bar(f"{self.context.stage.name}: {what}", count, "episode")
        self.worker.on_episode = lambda _: progress.update()
        return progress

    def _record(self, phase: str, step: int | None) -> dict[str, Any]:
        stage = self.context.stage
        return {"stage": stage.name, "task": stage.tasks.template, "phase": phase, "step": step}

    def _pictured(self, episodes: Sequence[Episode], phase: str) -> set[str]:
        """The same start states before and after, as many of each variant."""
        variants = [variant.name for variant in self.context.variants]
        if phase == "eval_after" and (before := self._pictured_before()):
            return kept_after(episodes, before, variants)
        return kept_before(episodes, variants)

    def _pictured_before(self) -> dict[str, float]:
        """What each start with pictures from before GRPO was worth then."""
        rows = map(read_episode, self.folder.records("episodes.jsonl"))
        name = self.context.stage.name
        return {
            row.episode: worth(row.reward, row.success)
            for row in rows
            if row.phase == "eval_before" and row.stage == name and row.pictured and row.episode
        }

    def _record_episodes(
        self,
        episodes: Sequence[Episode],
        phase: str,
        step: int | None,
        *,
        pictured: Collection[str] = (),
    ) -> None:
        """A line each; those are pictured, too, that are the first to fail for their cause."""
        shown = {*pictured, *self.tally.add_causes(episodes)}
        for episode in episodes:
            frames, end = self._save_frames(episode, phase) if episode.id in shown else ([], None)
            row = episode_row(episode, frames, end, **self._record(phase, step))
            self.folder.append("episodes.jsonl", episode_row_record(row))

    def _save_frames(self, episode: Episode, phase: str) -> tuple[list[str | None], str | None]:
        """What each turn saw, and the screen after the last action, where there is one."""
        saved = [
            self.folder.save_frame(f"{phase}-{episode.id}-{index}", png)
            for index, png in enumerate(episode.screenshots)
        ]
        return by_turn(saved, episode)

    @property
    def _checkpoints(self) -> Path:
        return self.folder.checkpoints / self.context.stage.name

    def _checkpoint(self, trainer: GRPOTrainer) -> None:
        self.state.step = trainer.state.step
        trainer.gather()
        save_checkpoint(
            self._checkpoints,
            trainer,
            weights=trainer.weights,
            keep=self.context.recipe.run.keep_checkpoints,
            extra={"progress": to_json(self.progress.record(self.folder))},
            beside=self._prompt_format().save,
        )
        self._save()

    def _prompt_format(self) -> PromptFormat:
        """How the policy is asked, for evaluating or serving a checkpoint."""
        config = self.context.config
        return prompt_format_of(
            self.policy,
            system=config.system_prompt,
            tool=config.tool,
            first_screenshot=config.first_screenshot,
        )

    def _save(self) -> None:
        self.progress.save(self.folder)


def episode_row(
    episode: Episode,
    frames: Sequence[str | None] = (),
    end: str | None = None,
    *,
    stage: str,
    task: str,
    phase: str,
    step: int | None,
) -> EpisodeRow:
    """An episode as a line of `episodes.jsonl`; `frames` are pictures of what each turn saw, `end`
    of the screen after the last action."""
    return EpisodeRow(
        task=task,
        phase=phase,
        stage=stage,
        step=step,
        variant=episode.task,
        group=episode.group,
        episode=episode.id,
        reward=episode.reward,
        success=episode.success,
        status=episode.status,
        error=episode.error,
        end=end,
        gate=None if episode.judged is None else risky_calls(episode),
        penalty=None if episode.judged is None else episode.penalty,
        turns=tuple(
            TurnRow(
                action=redact(dict(action.arguments or {})),
                valid=action.valid,
                text=redact(action.text),
                thought=redact(action.thought),
                reading=None if read is None else read.reading,
                frame=frames[index] if index < len(frames) else None,
            )
            for index, (action, read) in enumerate(
                zip(episode.actions, transcripts(episode), strict=True)
            )
        ),
    )


def _due(step: int, sft: SftSettings) -> bool:
    """Whether the warm-up looks after this step if it is time to stop."""
    if sft.stop_at is None or step < sft.check_from:
        return False
    return step % sft.check_every == 0 or step == sft.steps


def _reward(samples: Sequence[Sample]) -> Callable[[int], float]:
    """The reward of a sample by its index; only samples that count are asked."""
    return lambda index: samples[index].reward or 0.0


def _mean(value: Any) -> float | None:
    return None if value is None else value.mean
