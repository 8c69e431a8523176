"""One HUD episode against Miles' router, from its task row to the lab's samples.

    Miles' sample (metadata.hud_task) ──▶ HUD episode ──▶ turns, screenshots ──▶ our samples

An `EpisodeRunner` is made once per process: it holds what all episodes share, the HUD runtime, the
gate in front of the sandboxes, the tokenizer's table and the image processor. Invariant: an episode
that cannot be trained on becomes one write-off that says why; a fault of the set-up raises.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from cua_lab.errors import LabError
from cua_lab.miles.recipe import MilesRecipe, from_args
from cua_lab.miles.secrets import hide, redacted
from cua_lab.miles.token_sets import forbidden_ids, stop_ids
from cua_lab.play.agent import LabAgentConfig, agent_config
from cua_lab.play.episode import play
from cua_lab.play.episode_samples import episode_samples
from cua_lab.play.runtimes import make_runtime
from cua_lab.policy.policy import load_vision
from cua_lab.policy.tokenizer import load_tokenizer
from cua_lab.serving.sampling_request import NEUTRAL
from cua_lab.serving.shim import ShimTransport
from cua_lab.stitching.codec import codec_from_tokenizer
from cua_lab.tasks import to_hud_task

if TYPE_CHECKING:
    from cua_lab.play.episode import Episode, Status
    from cua_lab.policy.vision import Vision
    from cua_lab.stitching.codec import TableCodec
    from cua_lab.stitching.sample import Sample

logger = logging.getLogger("cua_lab.miles")


@dataclass(frozen=True, slots=True)
class EpisodeRequest:
    """What Miles wants played."""

    hud_task: Mapping[str, Any]
    """The task row: env, id, args, slug."""
    group: str
    episode: str
    sampling: Mapping[str, Any]
    """Miles' sampling parameters."""
    seed: int | None
    """Of the sampling, where the server honours one."""


@dataclass(slots=True, eq=False)
class EpisodeRunner:
    """Plays episodes for one process."""

    recipe: MilesRecipe
    base_url: str
    model: str
    runtime: Any
    tokenizer: Any
    vision: Vision
    codec: TableCodec
    stop_ids: frozenset[int]
    """End an answer."""
    forbidden_ids: tuple[int, ...]
    """In no answer."""
    failures: int = 0
    """In a row."""
    _gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = field(
        default_factory=WeakKeyDictionary
    )

    @classmethod
    def open(cls, args: Any) -> EpisodeRunner:
        """From Miles' args."""
        recipe = from_args(args)
        runtime = recipe.runtime
        hide()
        tokenizer = load_tokenizer(args.hf_checkpoint)
        return cls(
            recipe=recipe,
            base_url=f"http://{args.sglang_router_ip}:{args.sglang_router_port}/v1/",
            model=str(args.hf_checkpoint),
            runtime=make_runtime(
                recipe.tasks.package,
                runtime.kind,
                concurrency=runtime.max_sandboxes,
                image=runtime.name,
                key_file=runtime.key_file,
            ),
            tokenizer=tokenizer,
            vision=load_vision(args.hf_checkpoint),
            codec=codec_from_tokenizer(tokenizer),
            stop_ids=stop_ids(args.hf_checkpoint, tokenizer),
            forbidden_ids=forbidden_ids(args.hf_checkpoint, tokenizer),
        )

    @property
    def gate(self) -> asyncio.Semaphore:
        """One for the process; Miles runs all episodes in one event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._gates:
            self._gates[loop] = asyncio.Semaphore(self.recipe.runtime.max_sandboxes)
        return self._gates[loop]

    async def samples(self, ask: EpisodeRequest) -> list[Sample]:
        """Play and convert; one log line."""
        async with self.gate:
            episode = await self._play(ask)
        made = self._convert(episode)
        self._log(episode, made)
        self._count(made[0])
        return made

    async def _play(self, ask: EpisodeRequest) -> Episode:
        import httpx

        shim = ShimTransport(
            httpx.AsyncHTTPTransport(trust_env=False),
            dialect="sglang",
            seed=ask.seed,
            stop_ids=self.stop_ids,
            forbidden_ids=self.forbidden_ids,
        )
        episode = await play(
            _task(ask),
            self._config(ask),
            shim,
            runtime=self.runtime,
            id=ask.episode,
            group=ask.group,
            timeout_s=self.recipe.agent.timeout_s,
            turns=lambda: tuple(shim.turns),
            base_url=self.base_url,
        )
        error = episode.error and redacted(episode.error)
        return replace(episode, error=error, status=status_of(episode))

    def _config(self, ask: EpisodeRequest) -> LabAgentConfig:
        agent = self.recipe.agent
        longest = ask.sampling.get("max_new_tokens") or agent.max_tokens
        return agent_config(
            agent,
            self.recipe.tool,
            model=self.model,
            max_tokens=min(agent.max_tokens, longest),
            **_sampling_options(ask.sampling, agent.temperature),
        )

    def _convert(self, episode: Episode) -> list[Sample]:
        """Every sequence that shows an image; otherwise the write-off."""
        context = self.recipe.context
        prompt = len(episode.turns[0].prompt_ids) if episode.turns else 0
        return episode_samples(
            episode,
            self.codec,
            self.vision,
            merge=self.vision.geometry.merge,
            after_rewrite=self.recipe.agent.after_rewrite,
            max_tokens=min(context.limit, prompt + context.response),
            images_only=True,
        )

    def _log(self, episode: Episode, made: Sequence[Sample]) -> None:
        if made[0].reward is None:
            logger.warning(
                "episode %s of %s failed after %d turns, %.1f s: %s",
                *(episode.id, episode.task, len(episode.turns), episode.seconds, made[0].reason),
            )
            return
        divergences = [d.kind for sample in made for d in sample.stitched.divergences]
        logger.info(
            "episode %s of %s: reward %.3f, %s, %d turns, %d tokens of which %d trained in %d"
            " sequences, divergences %s, %.1f s",
            episode.id,
            episode.task,
            made[0].reward,
            made[0].status,
            len(episode.turns),
            sum(len(sample.stitched.tokens) for sample in made),
            sum(sum(sample.stitched.loss_mask) for sample in made),
            len(made),
            {kind: divergences.count(kind) for kind in dict.fromkeys(divergences)},
            episode.seconds,
        )

    def _count(self, first: Sample) -> None:
        """A fault of the machinery fails every episode; Miles would refill the batch forever."""
        self.failures = self.failures + 1 if first.reward is None else 0
        limit = self.recipe.runtime.stop_after_failures
        if self.failures >= limit:
            raise LabError(
                f"{self.failures} episodes in a row failed, the last one with: {first.reason};"
                " this is the set-up, not the policy. Fix it and start again with"
                " `cua-lab miles --mode smoke`"
            )


_player: EpisodeRunner | None = None
_player_lock = threading.Lock()


def player_of(args: Any) -> EpisodeRunner:
    """The process's player; another recipe, router or model makes another one."""
    global _player
    with _player_lock:
        if _player is None or not _serves(_player, args):
            _player = EpisodeRunner.open(args)
        return _player


def _serves(player: EpisodeRunner, args: Any) -> bool:
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/v1/"
    same = (player.base_url, player.model) == (url, str(args.hf_checkpoint))
    return same and player.recipe == from_args(args)


def status_of(episode: Episode) -> Status:
    """The episode's; truncated where the last answer has neither a call nor a word, which ended it
    as an unreadable answer would."""
    if episode.status != "completed" or not episode.actions:
        return episode.status
    last = episode.actions[-1]
    silent = last.arguments is None and not last.thought.strip()
    return "truncated" if silent else "completed"


def _sampling_options(sampling: Mapping[str, Any], temperature: float) -> dict[str, Any]:
    """Miles' sampling parameters by the names of a chat request; sglang takes top_k 0 for none."""
    said = {name: sampling[name] for name in NEUTRAL if sampling.get(name) is not None}
    if said.get("top_k") == 0:
        said["top_k"] = -1
    return {"temperature": temperature, **said}


def _task(ask: EpisodeRequest) -> Any:
    slug = str(ask.hud_task.get("slug"))
    row = {"prompt": [{"role": "user", "content": slug}], "label": slug}
    return to_hud_task({**row, "metadata": {"hud_task": dict(ask.hud_task)}})
