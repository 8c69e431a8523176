"""Teacher forcing: the log-probabilities a policy gives to tokens that already exist.

A `Batch` holds B sequences padded on the right. Causal attention never looks right, so no
attention mask is needed: padding changes nothing before it. Invariant: log-probabilities are of the
distribution that was sampled from, log_softmax(logits / T) with the forbidden ids masked out first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from cua_lab.policy.model import ImageFeatures, encode_images
from cua_lab.policy.policy import Policy
from cua_lab.policy.positions import mrope_positions
from cua_lab.policy.sharing import Shared, shared_tokens
from cua_lab.policy.text_forward import states_at, writes_out
from cua_lab.policy.vision import tokens_of

HEAD_BYTES = 256 * 2**20
"""Of float32 logits at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One token sequence with its images."""

    ids: Sequence[int]
    """(T,), image pads expanded."""
    pixels: np.ndarray
    """float32 (n_patches, patch_dim), images in order."""
    grids: np.ndarray
    """int64 (n_images, 3)."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Sequences ready for one forward pass."""

    ids: torch.Tensor
    """(B, T) long, padded on the right with 0."""
    lengths: tuple[int, ...]
    """Real tokens of each row."""
    positions: torch.Tensor
    """(3, B, T) long; padding stands at 0."""
    pixels: torch.Tensor
    """(n_patches, patch_dim) of the DISTINCT images."""
    grids: torch.Tensor
    """(n_distinct, 3)."""
    image_index: tuple[int, ...]
    """For each image of the rows, in order, which distinct image it is."""
    shared: Shared
    """Which tokens the rows have in common."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What the policy thinks of chosen tokens; NaN where nothing was asked."""

    logprobs: torch.Tensor
    """(B, T): of token t given those before it."""
    entropy: torch.Tensor
    """(B, T): of the distribution that token t was drawn from, nats; carries no gradient."""


def collate(policy: Policy, examples: Sequence[Example]) -> Batch:
    """Pad on the right, compute positions, and keep each distinct image once."""
    width = max(len(example.ids) for example in examples)
    ids = np.zeros((len(examples), width), dtype=np.int64)
    positions = np.zeros((3, len(examples), width), dtype=np.int64)
    for row, example in enumerate(examples):
        length = len(example.ids)
        ids[row, :length] = example.ids
        positions[:, row, :length] = mrope_positions(
            example.ids,
            example.grids,
            image_token_id=policy.image_token_id,
            merge=policy.merge,
        )
    pixels, grids, image_index = _distinct_images(examples)
    owners = _owners(examples, image_index, policy.merge)
    return Batch(
        ids=torch.from_numpy(ids),
        lengths=tuple(len(example.ids) for example in examples),
        positions=torch.from_numpy(positions),
        pixels=torch.from_numpy(pixels),
        grids=torch.from_numpy(grids),
        image_index=image_index,
        shared=shared_tokens(
            [example.ids for example in examples], owners, image_token_id=policy.image_token_id
        ),
    )


def _owners(examples: Sequence[Example], image_index: Sequence[int], merge: int) -> list[list[int]]:
    """For each image token of each row, the distinct image it is a part of."""
    indices = iter(image_index)
    return [
        [image for size in tokens_of(example.grids, merge) for image in [next(indices)] * size]
        for example in examples
    ]


def _distinct_images(
    examples: Sequence[Example],
) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Group members share their first screenshot: encode it once, use it often."""
    seen: dict[tuple[bytes, bytes], list[int]] = {}
    pixels: list[np.ndarray] = []
    grids: list[np.ndarray] = []
    index: list[int] = []
    for example in examples:
        rows = np.asarray(example.grids, dtype=np.int64).reshape(-1, 3)
        bounds = np.cumsum([0, *rows.prod(axis=1)])
        for grid, first, last in zip(rows, bounds[:-1], bounds[1:], strict=True):
            patches = np.asarray(example.pixels[first:last], dtype=np.float32)
            alike = seen.setdefault((grid.tobytes(), patches[:, ::97].tobytes()), [])
            same = next((k for k in alike if np.array_equal(pixels[k], patches)), None)
            if same is None:
                same = len(pixels)
                alike.append(same)
                pixels.append(patches)
                grids.append(grid)
            index.append(same)
    if not pixels:
        return np.zeros((0, 0), np.float32), np.zeros((0, 3), np.int64), ()
    return np.concatenate(pixels), np.stack(grids), tuple(index)


def on_device(batch: Batch, device: torch.device | str) -> Batch:
    """The batch's tensors moved; the same batch where they are there already.

    To a GPU they go through pinned memory, so that the copy does not hold up the caller.
    """
    device = torch.device(device)
    if batch.ids.device == device:
        return batch
    return replace(
        batch,
        ids=moved(batch.ids, device),
        positions=moved(batch.positions, device),
        pixels=moved(batch.pixels, device),
        grids=moved(batch.grids, device),
    )


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor on a device, without waiting for the copy where it can be helped."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def hidden_states(policy: Policy, batch: Batch) -> torch.Tensor:
    """The last layer's states, (B, T, H): the caller applies the head where it needs it."""
    batch = on_device(batch, policy.model.device)
    images = _image_features(policy, batch)
    last: torch.Tensor = policy.model.model(
        input_ids=batch.ids,
        position_ids=batch.positions,
        mm_encoder_outputs=None if images is None else images.for_model(),
        use_cache=False,
    ).last_hidden_state
    return last


def _image_features(policy: Policy, batch: Batch) -> ImageFeatures | None:
    if not batch.image_index:
        return None
    return encode_images(policy.model, batch.pixels, batch.grids).select(batch.image_index)


def _states_before(
    policy: Policy, batch: Batch, loss_mask: torch.Tensor, float64_attention: bool
) -> torch.Tensor:
    """The states (N, H) that the tokens at `loss_mask` (B, T) are predicted from."""
    before = torch.zeros_like(loss_mask)
    before[:, :-1] = loss_mask[:, 1:]
    if not writes_out(policy.model):
        return hidden_states(policy, batch)[before]
    images = _image_features(policy, batch)
    return states_at(
        policy.model,
        batch.ids,
        batch.positions,
        before,
        images,
        batch.shared,
        float64_attention=float64_attention,
    )


def policy_forward(policy: Policy, batch: Batch) -> torch.Tensor:
    """Logits (B, T, V) at every position: for looking; training asks `score`."""
    logits: torch.Tensor = policy.model.lm_head(hidden_states(policy, batch))
    return logits


def masked_logits(
    logits: torch.Tensor, *, temperature: float, forbidden_ids: Sequence[int]
) -> torch.Tensor:
    """Logits (..., V) of what is sampled from: at a temperature, forbidden ids at -inf."""
    scaled = logits.float() / temperature
    if not forbidden_ids:
        return scaled
    return scaled.index_fill(-1, torch.tensor(forbidden_ids, device=logits.device), -torch.inf)


def score(
    policy: Policy,
    batch: Batch,
    loss_mask: torch.Tensor,
    *,
    temperature: float = 1.0,
    float64_attention: bool = False,
) -> Scores:
    """Log-probability and entropy of the tokens at `loss_mask` (B, T) bool; the rest is NaN.

    The head runs on those positions only: answers are a fifth of an episode's tokens. The batch may
    lie on the CPU; the scores are where the network is. `float64_attention`: to be compared with
    the engine's (`text_forward.states_at`), bit for bit where the network is written out.
    """
    if bool(loss_mask[:, 0].any()):
        raise ValueError("token 0 of a sequence has no prediction; `loss_mask` must be False there")
    batch = on_device(batch, policy.model.device)
    loss_mask = moved(loss_mask, batch.ids.device)
    states = _states_before(policy, batch, loss_mask, float64_attention)  # (N, H)
    chosen, entropy = _head(policy, states, batch.ids[loss_mask], temperature)
    return Scores(logprobs=_spread(chosen, loss_mask), entropy=_spread(entropy, loss_mask))


def _head(
    policy: Policy, states: torch.Tensor, ids: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies (N,), with at most `HEAD_BYTES` of logits at a time.

    1600 answers' tokens of a vocabulary of 151,936 are 1 GB of logits, and four times that with
    their gradient: in parts, of which each is computed again in the backward pass, they are not.
    """
    rows = max(1, HEAD_BYTES // (4 * policy.vocab_size))
    if len(states) <= rows:
        return _from_states(policy, states, ids, temperature)
    parts = []
    for first in range(0, len(states), rows):
        part = policy, states[first : first + rows], ids[first : first + rows], temperature
        parts.append(
            checkpoint(_from_states, *part, use_reentrant=False)
            if states.requires_grad
            else _from_states(*part)
        )
    chosen, entropy = zip(*parts, strict=True)
    return torch.cat(chosen), torch.cat(entropy)


def _from_states(
    policy: Policy, states: torch.Tensor, ids: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = masked_logits(
        policy.model.lm_head(states),
        temperature=temperature,
        forbidden_ids=policy.forbidden_ids,
    )
    logprobs = torch.log_softmax(logits, dim=-1)  # (N, V)
    chosen = logprobs.gather(-1, ids[:, None])[:, 0]  # (N,)
    with torch.no_grad():
        entropy = -(logprobs.exp() * logprobs.clamp(min=-1e9)).sum(-1)  # (N,); 0 * -inf is NaN
    return chosen, entropy


def _spread(values: torch.Tensor, loss_mask: torch.Tensor) -> torch.Tensor:
    """(N,) back to (B, T), NaN elsewhere; the gradient comes back through the scatter."""
    empty = torch.full(loss_mask.shape, torch.nan, dtype=values.dtype, device=values.device)
    return empty.masked_scatter(loss_mask, values)
