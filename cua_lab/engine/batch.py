"""One batch from prompts to outputs: prefill, decode, drop rows as they finish.

Invariant: what a row samples does not depend on the other rows (see `decoder` for the last bits).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from cua_lab.engine.decoder import KV, Decoder
from cua_lab.engine.features import FeatureCache
from cua_lab.engine.prefill import ROOM_STEP, Prefill
from cua_lab.engine.prefix_cache import PrefixCache
from cua_lab.engine.sequences import EngineStats, RunningSequence, finish, top_of
from cua_lab.engine.token_sampling import Sampler, uniforms


class BatchRunner:
    """Runs batches on one model, one after the other."""

    def __init__(
        self,
        decoder: Decoder,
        features: FeatureCache,
        cache: PrefixCache,
        forbidden_ids: Sequence[int],
        stats: EngineStats,
    ) -> None:
        self.decoder = decoder
        self.cache = cache
        self.stats = stats
        self.forbidden = torch.zeros(decoder.head.weight.shape[0], device=decoder.device)
        self.forbidden[list(forbidden_ids)] = -torch.inf
        self._prefill = Prefill(decoder, features, cache, self.forbidden, stats)

    @torch.inference_mode()
    def run(self, rows: Sequence[RunningSequence]) -> None:
        """Fill in every row's output."""
        self.stats.batches += 1
        self.stats.rows += len(rows)
        kv, hidden = self._prefill.run(rows)
        _Decode(self, list(rows), kv).run(self.decoder.logits(hidden).float())


class _Decode:
    """The running rows of a batch; every tensor has one entry per running row, in one order."""

    def __init__(self, runner: BatchRunner, rows: list[RunningSequence], kv: KV) -> None:
        self.runner = runner
        self.rows = rows
        self.kv = kv
        device = runner.decoder.device
        steps = max(row.max_new for row in rows)
        self.uniforms = np.zeros((len(rows), steps))
        for i, row in enumerate(rows):
            if not row.params.greedy:
                self.uniforms[i, : row.max_new] = uniforms(row.seed, row.index, row.max_new)
        self.positions = torch.tensor([row.prompt.next_position for row in rows], device=device)
        self.sampler = Sampler([row.params for row in rows], runner.forbidden)
        self.mask = runner.decoder.mask(kv)
        self.top = max(row.top for row in rows)

    def run(self, logits: torch.Tensor) -> None:
        """Sample until every row has finished."""
        began = time.perf_counter()
        for i, row in enumerate(self.rows):
            if row.max_new == 0:
                self._report_only(row, logits[i : i + 1])
                row.finish = "length"
        going = [i for i, row in enumerate(self.rows) if not row.finish]
        if len(going) < len(self.rows):
            logits = logits[self._drop(going)]
        step = 0
        while self.rows:
            ids = self._sample(logits, step)
            step += 1
            going = [i for i, row in enumerate(self.rows) if not row.finish]
            if len(going) < len(self.rows):
                ids = ids[self._drop(going)]
            if self.rows:
                logits = self._forward(ids)
        self.runner.stats.decode_s += time.perf_counter() - began

    def _sample(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        """Give every row its next token; the ids (B,)."""
        logprobs = self.sampler.logprobs(logits)
        ids = self.sampler.draw(logprobs, self.uniforms[:, step])
        chosen = logprobs.gather(1, ids[:, None])[:, 0].tolist()
        tops = top_of(logprobs, self.top)
        self.runner.stats.decode_tokens += len(self.rows)
        for i, (row, token) in enumerate(zip(self.rows, ids.tolist(), strict=True)):
            row.ids.append(token)
            row.logprobs.append(chosen[i])
            top = tops[i][: row.top] if row.top else []
            if row.top:
                row.tops.append(top)
            finish(row)
            if row.on_token is not None:
                row.on_token(token, chosen[i], top)
        return ids

    def _forward(self, ids: torch.Tensor) -> torch.Tensor:
        if max(self.kv.lengths) == self.kv.columns:
            self.kv.grow(max(ROOM_STEP, self.kv.columns // 2))
            self.mask = self.runner.decoder.mask(self.kv)
        logits = self.runner.decoder.step(ids, self.positions, self.kv, self.mask).float()
        self.positions = self.positions + 1
        return logits

    def _drop(self, going: list[int]) -> torch.Tensor:
        """Go on with the rows in `going`; the order they now stand in.

        The last running rows move into the gaps, so only they are copied.
        """
        for i, row in enumerate(self.rows):
            if row.finish and row.finish != "abort":
                self._remember(i, row)
        # Rows keep their place where they can: the first len(going) places are to be filled, those
        # among them whose row has finished are gaps, and exactly as many running rows stand behind.
        order = list(range(len(going)))
        gaps = [i for i in order if self.rows[i].finish]
        movers = [i for i in going if i >= len(going)]
        for gap, mover in zip(gaps, movers, strict=True):
            self.kv.copy_row(mover, gap)
            order[gap] = mover
        self.kv.narrow(len(going))
        self.rows = [self.rows[i] for i in order]
        keep = torch.tensor(order, dtype=torch.long, device=self.positions.device)
        if self.rows:
            self.sampler.keep(keep)
            self.positions = self.positions[keep]
            self.uniforms = self.uniforms[order]
            self.mask = self.runner.decoder.mask(self.kv)
        return keep

    def _remember(self, index: int, row: RunningSequence) -> None:
        """Cache a finished row: its prompt and what it said, but for the last token."""
        said = np.array(row.ids[:-1], dtype=np.int64)
        cache_ids = np.concatenate([row.prompt.cache_ids, said])
        self.runner.cache.put(cache_ids, self.kv.row(index))

    def _report_only(self, row: RunningSequence, logits: torch.Tensor) -> None:
        """A request for no tokens still learns what would have come."""
        if row.top:
            row.tops.append(top_of(self._sampler_of(row).logprobs(logits), row.top)[0])

    def _sampler_of(self, row: RunningSequence) -> Sampler:
        """A sampler for one row."""
        return Sampler([row.params], self.runner.forbidden)
