"""One batch from prompts to outputs: prefill what is not cached, decode, drop rows as they finish.

A `Row` is one output to be. Rows with the same prompt (a GRPO group's first turn, or `n` choices)
are prefilled once; a prefix that all prompts of a batch share is prefilled once, too; and what a
conversation said before comes out of the prefix cache, so that a turn costs its new tokens only.

Invariant: what a row samples does not depend on the other rows but for the last bits of float32.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from cua_lab.serving.cache import PrefixCache, common_prefix
from cua_lab.serving.decoder import KV, Decoder, Span
from cua_lab.serving.features import FeatureCache
from cua_lab.serving.prompt import Prompt
from cua_lab.serving.sampling import Sampler, SamplingParams, uniforms

SHARED_WORTH = 32
"""Prefill a common prefix by itself when it saves each further row this many tokens."""
PACK_TOKENS = 8192
"""Prompt tokens of one prefill call; more are split at rows, to bound the memory."""
ROOM_STEP = 64
"""Columns by which a batch's KV grows."""
LOWEST = torch.finfo(torch.float32).min
"""Reported for an id that cannot be said: JSON has no -inf, and sglang reports this number."""

Top = list[tuple[float, int]]
"""The likeliest ids of one position with their log-probabilities, best first."""


@dataclass(slots=True, eq=False)
class Row:
    """One output to be, and what became of it."""

    prompt: Prompt
    params: SamplingParams
    seed: int
    index: int
    """Which of the request's `n` choices."""
    max_new: int
    stop_ids: frozenset[int]
    top: int = 0
    """How many alternatives to report per token."""
    score_from: int | None = None
    """Also report the log-probabilities of the prompt's tokens from this index on."""
    decode: Callable[[list[int]], str] | None = None
    """Ids to text, needed where `params.stop` is used."""
    on_token: Callable[[int, float, Top], None] | None = None
    cancelled: Callable[[], bool] = lambda: False

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: list[Top] = field(default_factory=list)
    prompt_logprobs: list[float] = field(default_factory=list)
    cached: int = 0
    """Prompt tokens that were not computed for this row."""
    finish: str = ""
    """`stop`, `length` or `abort`; empty while running."""
    matched: int | str | None = None
    """The token id or string that stopped it."""


@dataclass(slots=True)
class Stats:
    """Work done so far."""

    batches: int = 0
    rows: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens found in the prefix cache or shared within the batch."""
    prefill_tokens: int = 0
    """Prompt tokens computed; with `cached_tokens` they make up `prompt_tokens`."""
    decode_tokens: int = 0
    images_encoded: int = 0
    vision_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


class BatchRunner:
    """Runs batches on one model, one after the other."""

    def __init__(
        self,
        decoder: Decoder,
        features: FeatureCache,
        cache: PrefixCache,
        forbidden_ids: Sequence[int],
        stats: Stats,
    ) -> None:
        self.decoder = decoder
        self.features = features
        self.cache = cache
        self.stats = stats
        self.forbidden = torch.zeros(decoder.head.weight.shape[0], device=decoder.device)
        self.forbidden[list(forbidden_ids)] = -torch.inf

    @torch.inference_mode()
    def run(self, rows: Sequence[Row]) -> None:
        """Fill in every row's output."""
        self.stats.batches += 1
        self.stats.rows += len(rows)
        kv, hidden = self._prefill(rows)
        _Decode(self, list(rows), kv).run(self.decoder.logits(hidden).float())

    # -- prefill -----------------------------------------------------------------------------

    def _prefill(self, rows: Sequence[Row]) -> tuple[KV, torch.Tensor]:
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

    def _prefill_shared(self, rows: Sequence[Row]) -> None:
        """Put the prefix that all `rows` share into the cache, if that saves enough."""
        if len(rows) < 2 or any(row.score_from is not None for row in rows):
            return
        first = rows[0].prompt
        shared = min(common_prefix(first.keyed, row.prompt.keyed) for row in rows)
        shared = min(shared, min(len(row.prompt) for row in rows) - 1)
        if shared - self.cache.longest(first.keyed)[0] < SHARED_WORTH:
            return
        row = Row(first.head(shared), rows[0].params, 0, 0, 0, frozenset())
        kv = self.decoder.new_kv([shared], 0)
        self._prefill_into(kv, [row], [0])
        self.cache.put(row.prompt.keyed, kv.row(0))
        # It is not a request: its tokens count as computed, and as nobody's prompt.
        self.stats.prompt_tokens += shared - row.cached

    def _prefill_into(self, kv: KV, rows: Sequence[Row], chosen: Sequence[int]) -> torch.Tensor:
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

    def _restore(self, kv: KV, index: int, row: Row) -> int:
        """Copy the longest cached prefix into the buffer; how many tokens that is."""
        length, known = self.cache.longest(row.prompt.keyed)
        limit = len(row.prompt) - 1  # the last token is always computed: its state is needed
        if row.score_from is not None:
            limit = min(limit, max(row.score_from - 1, 0))
        length = min(length, limit)
        if known is not None and length:
            kv.data[:, :, index, :, :length] = known[:, :, :, :length]
        return length

    def _prefill_pack(
        self, kv: KV, rows: Sequence[Row], pack: Sequence[int], hidden: torch.Tensor
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

    def _score_prompt(self, row: Row, span: Span, states: torch.Tensor) -> None:
        if row.score_from is None:
            return
        first = max(row.score_from, 1)
        states = states[span.first + first - 1 - span.cached : span.last - 1]
        logits = self.decoder.logits(states).float()
        logprobs = Sampler([row.params] * len(logits), self.forbidden).logprobs(logits)
        targets = torch.from_numpy(row.prompt.ids[first:]).to(logprobs.device)
        scores = logprobs.gather(1, targets[:, None])[:, 0]
        row.prompt_logprobs = scores.clamp(min=LOWEST).tolist()


def _leaders(rows: Sequence[Row]) -> list[int]:
    """For each row, the first row with the same prompt."""
    seen: dict[tuple[bytes, int | None], int] = {}
    return [
        seen.setdefault((row.prompt.keyed.tobytes(), row.score_from), index)
        for index, row in enumerate(rows)
    ]


class _Decode:
    """The running rows of a batch; every tensor has one entry per running row, in one order."""

    def __init__(self, runner: BatchRunner, rows: list[Row], kv: KV) -> None:
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
        tops = _top(logprobs, self.top)
        self.runner.stats.decode_tokens += len(self.rows)
        for i, (row, token) in enumerate(zip(self.rows, ids.tolist(), strict=True)):
            row.ids.append(token)
            row.logprobs.append(chosen[i])
            top = tops[i][: row.top] if row.top else []
            if row.top:
                row.tops.append(top)
            _finish(row)
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

    def _remember(self, index: int, row: Row) -> None:
        """Cache a finished row: its prompt and what it said, but for the last token."""
        said = np.array(row.ids[:-1], dtype=np.int64)
        keyed = np.concatenate([row.prompt.keyed, said])
        self.runner.cache.put(keyed, self.kv.row(index))

    def _report_only(self, row: Row, logits: torch.Tensor) -> None:
        """A request for no tokens still learns what would have come."""
        if row.top:
            row.tops.append(_top(self.sampler_of(row).logprobs(logits), row.top)[0])

    def sampler_of(self, row: Row) -> Sampler:
        """A sampler for one row."""
        return Sampler([row.params], self.runner.forbidden)


def _top(logprobs: torch.Tensor, count: int) -> list[Top]:
    """The `count` likeliest ids of each row."""
    if not count:
        return []
    values, ids = logprobs.clamp(min=LOWEST).topk(min(count, logprobs.shape[-1]), dim=-1)
    return [
        list(zip(row_values, row_ids, strict=True))
        for row_values, row_ids in zip(values.tolist(), ids.tolist(), strict=True)
    ]


def _finish(row: Row) -> None:
    """Decide whether the row's last token ended it."""
    count = len(row.ids)
    if row.cancelled():
        row.finish = "abort"
    elif count >= row.params.min_tokens and row.ids[-1] in row.stop_ids:
        row.finish, row.matched = "stop", row.ids[-1]
    elif count >= row.params.min_tokens and (stop := _stop_string(row)) is not None:
        row.finish, row.matched = "stop", stop
    elif count >= row.max_new:
        row.finish = "length"


def _stop_string(row: Row) -> str | None:
    if not row.params.stop or row.decode is None:
        return None
    # A token adds at least one byte, so a stop string ends within its own length of tokens.
    tail = row.decode(row.ids[-max(len(s.encode()) for s in row.params.stop) - 1 :])
    return next((stop for stop in row.params.stop if stop in tail), None)
