"""What the vision tower makes of an image, computed once per content and state of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cua_lab.engine.decoder import MIN_ROWS
from cua_lab.engine.prompt import ImageInput
from cua_lab.policy.byte_cache import ByteCache
from cua_lab.policy.model import encode_images
from cua_lab.policy.protocols import Network


@dataclass(frozen=True, slots=True)
class Features:
    """One image for the text decoder."""

    embeds: Tensor
    """(tokens, hidden), in place of the image tokens' embeddings."""
    deepstack: tuple[Tensor, ...]
    """(tokens, hidden) each, added after the first decoder layers; none for Qwen2.5-VL."""

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(part.numel() * part.element_size() for part in (self.embeds, *self.deepstack))


class FeatureCache:
    """Features by content, the least recently used dropped beyond `max_bytes`.

    An image of 128 px weighs 64 KB with a hidden size of 256, one of 1080p with Qwen3-VL's 2560
    83 MB.
    """

    def __init__(self, model: Network, max_bytes: int = 256 * 2**20) -> None:
        self._model = model
        self._known: ByteCache[int, Features] = ByteCache(max_bytes, lambda found: found.size)
        self.encoded = 0
        """Images that went through the vision tower."""

    def flush(self) -> None:
        """Forget everything."""
        self._known.clear()

    def get(self, images: Sequence[ImageInput]) -> list[Features]:
        """Features of each image; the unknown ones of one size are encoded together."""
        known = {image.key: self._known.get(image.key) for image in images}
        found = {key: features for key, features in known.items() if features is not None}
        unknown = {image.key: image for image in images if image.key not in found}
        # One size at a time: the tower takes mixed sizes another way, with other last bits.
        sizes: dict[bytes, list[ImageInput]] = {}
        for image in unknown.values():
            sizes.setdefault(image.grid_thw.tobytes(), []).append(image)
        for group in sizes.values():
            # The tower's last products have a row for each token: 4 for an image of 64 px alone,
            # and more for several. Where that changes the order of summation, each is encoded by
            # itself; 16 tokens (128 px) are enough for every routine.
            step = len(group) if group[0].tokens >= MIN_ROWS else 1
            for first in range(0, len(group), step):
                found.update(self._encode(group[first : first + step]))
        for key in unknown:
            self._known.put(key, found[key])
        return [found[image.key] for image in images]

    def _encode(self, images: list[ImageInput]) -> dict[int, Features]:
        self.encoded += len(images)
        device = self._model.lm_head.weight.device
        pixels = torch.from_numpy(np.concatenate([image.pixel_values for image in images]))
        grids = torch.from_numpy(np.concatenate([image.grid_thw for image in images]))
        out = encode_images(self._model, pixels.to(device), grids.to(device))
        # Copies: a view would keep the whole group's features for as long as one of them.
        return {
            image.key: Features(
                out.tokens[index].clone(), tuple(tap[index].clone() for tap in out.deepstack)
            )
            for index, image in enumerate(images)
        }
