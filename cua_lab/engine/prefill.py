"""The prompts of a batch: what is cached is restored, what is shared is computed once.

Rows with the same prompt (a GRPO group's first turn, or `n` choices) are computed once; a prefix
that all prompts of a batch share is computed once, too; and what a conversation said before comes
out of the prefix cache, so that a turn costs its new tokens only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from cua_lab.engine.decoder import KV, Decoder, Span
from cua_lab.engine.features import FeatureCache
from cua_lab.engine.prefix_cache import PrefixCache, common_prefix
from cua_lab.engine.prompt import Prompt
from cua_lab.engine.sequences import LOWEST, EngineStats, RunningSequence
from cua_lab.engine.token_sampling import Sampler

SHARED_WORTH = 32
"""Prefill a common prefix by itself when it saves each further row this many tokens."""
PACK_TOKENS = 8192
"""Prompt tokens of one prefill call; more are split at rows, to bound the memory."""
ROOM_STEP = 64
"""Columns by which a batch's KV grows."""


class Prefill:
    """Fills a batch's KV."""

    def __init__(
        self,
        decoder: Decoder,
        features: FeatureCache,
        cache: PrefixCache,
        forbidden: torch.Tensor,
        stats: EngineStats,
    ) -> None:
        self.decoder = decoder
        self.features = features
        self.cache = cache
        self.forbidden = forbidden
        self.stats = stats

    def run(self, rows: Sequence[RunningSequence]) -> tuple[KV, torch.Tensor]:
        """The batch's KV and the final hidden state of every row's prompt (B, hidden)."""
        began = time.perf_counter()
        vision_before = self.stats.vision_s
        leaders = _leaders(rows)
        self._prefill_shared([rows[i] for i in sorted(set(leaders))])
        room = min(max(row.max_new for row in rows), ROOM_STEP)
        kv = self.decoder.new_kv([len(row.prompt) for row in rows], room)
        hidden = self._prefill_into(kv, rows, sorted(set(leaders)))
        for index, leader in enumerate(leaders):
            if leader != index:
                kv.copy_row(leader, index)
                hidden[index] = hidden[leader]
                rows[index].cached = len(rows[index].prompt) - 1
                rows[index].prompt_logprobs = rows[leader].prompt_logprobs
        for row in rows:
            self.stats.prompt_tokens += len(row.prompt)
            self.stats.cached_tokens += row.cached
        spent = time.perf_counter() - began
        self.stats.prefill_s += spent - (self.stats.vision_s - vision_before)
        return kv, hidden

    def _prefill_shared(self, rows: Sequence[RunningSequence]) -> None:
        """Put the prefix that all `rows` share into the cache, if that saves enough."""
        if len(rows) < 2 or any(row.score_from is not None for row in rows):
            return
        first = rows[0].prompt
        shared = min(common_prefix(first.cache_ids, row.prompt.cache_ids) for row in rows)
        shared = min(shared, min(len(row.prompt) for row in rows) - 1)
        if shared - self.cache.longest(first.cache_ids)[0] < SHARED_WORTH:
            return
        row = RunningSequence(first.head(shared), rows[0].params, 0, 0, 0, frozenset())
        kv = self.decoder.new_kv([shared], 0)
        self._prefill_into(kv, [row], [0])
        self.cache.put(row.prompt.cache_ids, kv.row(0))
        # It is not a request: its tokens count as computed, and as nobody's prompt.
        self.stats.prompt_tokens += shared - row.cached

    def _prefill_into(
        self, kv: KV, rows: Sequence[RunningSequence], chosen: Sequence[int]
    ) -> torch.Tensor:
        hidden = torch.empty(
            (len(rows), self.decoder.head.weight.shape[1]),
            device=self.decoder.device,
            dtype=self.decoder.dtype,
        )
        pack: list[int] = []
        size = 0
        for index in chosen:
            row = rows[index]
            row.cached = self._restore(kv, index, row)
            if pack and size + len(row.prompt) - row.cached > PACK_TOKENS:
                self._prefill_pack(kv, rows, pack, hidden)
                pack, size = [], 0
            pack.append(index)
            size += len(row.prompt) - row.cached
        self._prefill_pack(kv, rows, pack, hidden)
        return hidden

    def _restore(self, kv: KV, index: int, row: RunningSequence) -> int:
        """Copy the longest cached prefix into the buffer; how many tokens that is."""
        length, known = self.cache.longest(row.prompt.cache_ids)
        limit = len(row.prompt) - 1  # the last token is always computed: its state is needed
        if row.score_from is not None:
            limit = min(limit, max(row.score_from - 1, 0))
        length = min(length, limit)
        if known is not None and length:
            kv.data[:, :, index, :, :length] = known[:, :, :, :length]
        return length

    def _prefill_pack(
        self, kv: KV, rows: Sequence[RunningSequence], pack: Sequence[int], hidden: torch.Tensor
    ) -> None:
        device = self.decoder.device
        spans, first = [], 0
        for index in pack:
            new = len(rows[index].prompt) - rows[index].cached
            spans.append(Span(index, first, first + new, rows[index].cached))
            first += new
        self.stats.prefill_tokens += first
        prompts = [(rows[span.row].prompt, span) for span in spans]
        ids = np.concatenate([p.ids[s.cached :] for p, s in prompts])
        positions = np.concatenate([p.position_ids[:, s.cached :] for p, s in prompts], axis=1)
        embeds = self.decoder.text.embed_tokens.weight[torch.from_numpy(ids).to(device)]
        visual, deepstack = self._place_images(embeds, prompts)
        states = self.decoder.prefill(
            embeds,
            torch.from_numpy(positions).to(device),
            spans,
            kv,
            visual=visual,
            deepstack=deepstack,
        )
        for span in spans:
            hidden[span.row] = states[span.last - 1]
            self._score_prompt(rows[span.row], span, states)

    def _place_images(
        self, embeds: torch.Tensor, prompts: Sequence[tuple[Prompt, Span]]
    ) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
        """Write image features over the pads; their positions and the deepstack features."""
        began = time.perf_counter()
        # A cached prefix never ends inside an image unless the whole image is known, so an image
        # may be partly new only when the very last token of a prompt belongs to it.
        places = [
            (image, span.first + max(start - span.cached, 0), max(span.cached - start, 0))
            for prompt, span in prompts
            for image, start in zip(prompt.images, prompt.image_starts, strict=True)
            if start + image.tokens > span.cached
        ]
        if not places:
            return None, []
        before = self.features.encoded
        features = self.features.get([image for image, _, _ in places])
        self.stats.images_encoded += self.features.encoded - before
        where = torch.cat(
            [
                torch.arange(first, first + image.tokens - known, device=embeds.device)
                for image, first, known in places
            ]
        )
        skips = [known for _, _, known in places]
        embeds[where] = torch.cat(
            [f.embeds[skip:] for f, skip in zip(features, skips, strict=True)]
        )
        deepstack = [
            torch.cat([f.deepstack[level][skip:] for f, skip in zip(features, skips, strict=True)])
            for level in range(len(features[0].deepstack))
        ]
        self.stats.vision_s += time.perf_counter() - began
        return where, deepstack

    def _score_prompt(self, row: RunningSequence, span: Span, states: torch.Tensor) -> None:
        if row.score_from is None:
            return
        first = max(row.score_from, 1)
        if first >= len(row.prompt):  # a prompt of one token has nothing before it
            return
        states = states[span.first + first - 1 - span.cached : span.last - 1]
        logits = self.decoder.logits(states).float()
        logprobs = Sampler([row.params] * len(logits), self.forbidden).logprobs(logits)
        targets = torch.from_numpy(row.prompt.ids[first:]).to(logprobs.device)
        scores = logprobs.gather(1, targets[:, None])[:, 0]
        row.prompt_logprobs = scores.clamp(min=LOWEST).tolist()


def _leaders(rows: Sequence[RunningSequence]) -> list[int]:
    """For each row, the first row with the same prompt."""
    seen: dict[tuple[bytes, int | None], int] = {}
    return [
        seen.setdefault((row.prompt.cache_ids.tobytes(), row.score_from), index)
        for index, row in enumerate(rows)
    ]
