"""The embedded engine: asynchronous requests in front of one model, batched in a worker thread.

    engine = Engine(load_policy("runs/laptop/checkpoint"))
    prompt = engine.prompt(ids, images)
    generation = await engine.complete(GenerationRequest(prompt, SamplingParams(max_tokens=64)))

Invariant: one state of the weights per generation. Batches and changes of the weights exclude each
other, and a change, announced or not, empties the caches before the next batch, so that keys and
values of old weights never meet new ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from cua_lab.engine.batch import BatchRunner
from cua_lab.engine.chat_prompts import ChatPrompts
from cua_lab.engine.decoder import Decoder
from cua_lab.engine.detokenizer import Detokenizer
from cua_lab.engine.features import FeatureCache
from cua_lab.engine.generation import Choice, Generation, GenerationRequest
from cua_lab.engine.prefix_cache import PrefixCache
from cua_lab.engine.prompt import Prompt
from cua_lab.engine.rounds import Rounds
from cua_lab.engine.sequences import EngineStats, RunningSequence, Top
from cua_lab.errors import LabError
from cua_lab.policy.policy import Policy
from cua_lab.policy.weights import weights_for


@dataclass(slots=True, eq=False)
class _Job:
    request: GenerationRequest
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Generation]
    cancelled: bool = False
    rows: list[RunningSequence] = field(default_factory=list)


class Engine:
    """Serves one policy; share the model with a trainer and call `weights_updated` after a step."""

    def __init__(
        self,
        policy: Policy,
        *,
        context_length: int | None = None,
        max_batch: int = 64,
        cache_mib: int = 256,
        gather_s: float = 0.002,
        seed: int = 0,
        threads: int = 1,
    ) -> None:
        """`None` as context length: what the model was made for, at most 32768.

        `gather_s`: how long a request without a slot waits for company. `seed` deals out seeds to
        requests that bring none. `threads`: one is safest on a shared machine, where two were 1.55
        times as fast when it was idle and 10 times slower under contention.
        """
        text = policy.model.config.text_config
        self.policy = policy
        self.context_length = context_length or min(text.max_position_embeddings, 32768)
        self.max_batch = max_batch
        self.weight_version = "default"
        self.stats = EngineStats()
        self.detokenizer = Detokenizer(policy.tokenizer)
        self.chats = ChatPrompts(policy, context_length=self.context_length)
        self._cache = PrefixCache(cache_mib * 2**20)
        self._features = FeatureCache(policy.model)
        self._runner = BatchRunner(
            Decoder(policy.model), self._features, self._cache, policy.forbidden_ids, self.stats
        )
        self._gather_s = gather_s
        self._seed = seed
        self._dealt = 0
        self._threads = threads
        self._rounds: Rounds[_Job] = Rounds()
        self._running: list[_Job] = []
        self._changed = threading.Condition()
        self._model_lock = threading.RLock()
        self._worker: threading.Thread | None = None
        self._closed = False

    # -- prompts -----------------------------------------------------------------------------

    def prompt(self, ids: Sequence[int], images: Sequence[bytes] = ()) -> Prompt:
        """A prompt from ids with ONE image token per image, and the encoded images."""
        return self.chats.of_ids(ids, images)

    # -- requests ----------------------------------------------------------------------------

    async def complete(self, request: GenerationRequest) -> Generation:
        """Sample; cancelling the call drops the request, running or not."""
        self._check(request)
        loop = asyncio.get_running_loop()
        job = _Job(request, loop, loop.create_future())
        with self._changed:
            if self._closed:
                raise LabError("the engine is closed; make a new one")
            self._rounds.add(job, request.slot)
            self._start_worker()
            self._changed.notify_all()
        try:
            return await job.future
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    def open_slots(self, count: int, *, limit_s: float | None = None) -> tuple[int, ...]:
        """Seats for `count` episodes: their requests run in rounds of all open slots.

        `limit_s`: a slot that asks nothing for so long after an answer is not awaited until it
        asks again. `None` waits forever.
        """
        with self._changed:
            slots = self._rounds.open(count, limit_s=limit_s)
            self._changed.notify_all()
        return slots

    def close_slot(self, slot: int) -> None:
        """The slot's episode is over: rounds no longer wait for it."""
        with self._changed:
            self._rounds.close(slot)
            self._changed.notify_all()

    def told(self) -> str:
        """Which requests run and for which slots the next round waits."""
        with self._changed:
            running = [job.request.slot for job in self._running]
            return f"engine: runs the slots {running}; {self._rounds.told()}"

    def close(self) -> None:
        """End the worker; requests that wait or run are cancelled."""
        with self._changed:
            self._closed = True
            for job in (*self._rounds.drain(), *self._running):
                job.cancelled = True
                with contextlib.suppress(RuntimeError):  # the loop has ended; nobody waits
                    job.loop.call_soon_threadsafe(job.future.cancel)
            self._changed.notify_all()
        if self._worker is not None:
            self._worker.join()

    def _abandon(self, job: _Job) -> None:
        with self._changed:
            job.cancelled = True
            self._rounds.abandon(job)
            self._rounds.absent(job.request.slot)
            self._changed.notify_all()

    def _check(self, request: GenerationRequest) -> None:
        length, limit, wanted = len(request.prompt), self.context_length, request.params.max_tokens
        if length >= limit:
            raise LabError(
                f"The input ({length} tokens) is longer than the model's context length"
                f" ({limit} tokens)."
            )
        if wanted is not None and wanted > limit:
            raise LabError(
                f"max_completion_tokens is too large: {wanted}."
                f"This model supports at most {limit} completion tokens."
            )
        if wanted is not None and length + wanted > limit:
            raise LabError(
                f"Requested token count exceeds the model's maximum context length of {limit}"
                f" tokens. You requested a total of {length + wanted} tokens: {length} tokens from"
                f" the input messages and {wanted} tokens for the completion. Please reduce the"
                " number of tokens in the input messages or the completion to fit within the limit."
            )
        if not 1 <= request.n <= self.max_batch:
            raise LabError(f"n must be from 1 to {self.max_batch}, got {request.n}.")

    # -- weights -----------------------------------------------------------------------------

    def weights_updated(self, version: str) -> None:
        """The shared model has new weights: name them and forget what the old ones computed."""
        with self._model_lock:
            self._renew()
            self.weight_version = version

    def load_weights(self, path: str | Path, version: str | None = None) -> None:
        """Take over the weights of a checkpoint folder; a folder that does not fit changes nothing.

        The version stays when none is given, as with sglang.
        """
        new = weights_for(self.policy.model, Path(path))
        with self._model_lock:
            self.policy.model.load_state_dict(new)
            self._renew()
            self.weight_version = version or self.weight_version

    def flush_cache(self) -> None:
        """Forget all prefixes and image features; waits for a running batch."""
        with self._model_lock:
            self._cache.flush()
            self._features.flush()

    def _renew(self) -> None:
        self._runner.decoder.refresh()
        self.flush_cache()

    # -- the worker --------------------------------------------------------------------------

    def _start_worker(self) -> None:
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="engine", daemon=True)
            self._worker.start()

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        while jobs := self._next_jobs():
            results = self._run_all(jobs)
            self._running = []
            # One call for all, so that a round's episodes go on in slot order.
            for loop in {id(job.loop): job.loop for job in jobs}.values():
                mine = [(job, result) for job, result in results if job.loop is loop]
                with contextlib.suppress(RuntimeError):  # the loop has ended; nobody waits
                    loop.call_soon_threadsafe(_deliver, mine)

    def _next_jobs(self) -> list[_Job]:
        """Wait for a round or for free requests; nothing once the engine is closed."""
        with self._changed:
            while not self._closed:
                if jobs := self._rounds.take_round():
                    self._running = jobs
                    return jobs
                if self._rounds.has_free:
                    self._changed.wait_for(lambda: self._closed, timeout=self._gather_s)
                    if jobs := self._rounds.take_free():
                        self._running = jobs
                        return jobs
                else:
                    self._changed.wait(self._rounds.patience_s)
        return []

    def _run_all(self, jobs: list[_Job]) -> list[tuple[_Job, Generation | Exception]]:
        results: list[tuple[_Job, Generation | Exception]] = []
        for batch in self._batches(jobs):
            try:
                with self._model_lock:
                    if self._runner.decoder.stale():
                        self._renew()
                    self._runner.run([row for job in batch for row in job.rows])
                    results.extend((job, self._generation(job)) for job in batch)
            except Exception as error:  # raised again in every caller of the batch
                results.extend((job, error) for job in batch)
        return results

    def _batches(self, jobs: list[_Job]) -> list[list[_Job]]:
        """Split in order so that no batch has more than `max_batch` rows."""
        batches: list[list[_Job]] = []
        size = self.max_batch
        for job in jobs:
            job.rows = self._rows(job)
            if size + len(job.rows) > self.max_batch:
                batches.append([])
                size = 0
            batches[-1].append(job)
            size += len(job.rows)
        return batches

    def _rows(self, job: _Job) -> list[RunningSequence]:
        request = job.request
        params = request.params
        stops = set(params.stop_token_ids)
        if not params.ignore_eos:
            stops.update(self.policy.stop_ids)
        wanted = params.max_tokens
        if wanted is None:
            wanted = self.context_length - len(request.prompt)
        seed = params.seed if params.seed is not None else self._deal_seed()
        return [
            RunningSequence(
                prompt=request.prompt,
                params=params,
                seed=seed,
                index=index,
                max_new=wanted,
                stop_ids=frozenset(stops),
                top=request.top,
                score_from=request.score_from,
                decode=self.detokenizer.text,
                on_token=_in_loop(job, index),
                cancelled=lambda: job.cancelled,
            )
            for index in range(request.n)
        ]

    def _deal_seed(self) -> int:
        self._dealt += 1
        state = np.random.SeedSequence([self._seed, self._dealt]).generate_state(1, np.uint64)
        return int(state[0])

    def _generation(self, job: _Job) -> Generation:
        return Generation(
            prompt=job.request.prompt,
            choices=tuple(
                Choice(
                    tuple(row.ids),
                    tuple(row.logprobs),
                    tuple(row.tops),
                    row.finish,
                    row.matched,
                    row.seed,
                )
                for row in job.rows
            ),
            prompt_logprobs=tuple(job.rows[0].prompt_logprobs),
            cached_tokens=job.rows[0].cached,
            weight_version=self.weight_version,
        )


def _in_loop(job: _Job, index: int) -> Callable[[int, float, Top], None] | None:
    """The request's `on_token`, called in its own event loop."""
    callback = job.request.on_token
    if callback is None:
        return None

    def on_token(token: int, logprob: float, top: Top) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended; nobody listens
            job.loop.call_soon_threadsafe(callback, index, token, logprob, top)

    return on_token


def _deliver(results: list[tuple[_Job, Generation | Exception]]) -> None:
    for job, result in results:
        if job.future.done():
            continue
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
