"""What the vision tower makes of an image, computed once per content and state of the weights."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cua_lab.engine.prompt import ImageInput
from cua_lab.policy.model import encode_images


@dataclass(frozen=True, slots=True)
class Features:
    """One image for the text decoder."""

    embeds: Tensor
    """(tokens, hidden), in place of the image tokens' embeddings."""
    deepstack: tuple[Tensor, ...]
    """(tokens, hidden) each, added after the first decoder layers; none for Qwen2.5-VL."""


class FeatureCache:
    """Features by content, the least recently used dropped beyond `size` images."""

    def __init__(self, model: Any, size: int = 1024) -> None:
        self._model = model
        self._size = size
        self._known: OrderedDict[int, Features] = OrderedDict()
        self.encoded = 0
        """Images that went through the vision tower."""

    def flush(self) -> None:
        """Forget everything."""
        self._known.clear()

    def get(self, images: Sequence[ImageInput]) -> list[Features]:
        """Features of each image; the unknown ones of one size are encoded together."""
        unknown = {image.key: image for image in images if image.key not in self._known}
        # One size at a time: the tower takes mixed sizes another way, with other last bits.
        sizes: dict[bytes, list[ImageInput]] = {}
        for image in unknown.values():
            sizes.setdefault(image.grid_thw.tobytes(), []).append(image)
        for group in sizes.values():
            self._known.update(self._encode(group))
        for image in images:
            self._known.move_to_end(image.key)
        found = [self._known[image.key] for image in images]
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return found

    def _encode(self, images: list[ImageInput]) -> dict[int, Features]:
        self.encoded += len(images)
        device = self._model.lm_head.weight.device
        pixels = torch.from_numpy(np.concatenate([image.pixel_values for image in images]))
        grids = torch.from_numpy(np.concatenate([image.grid_thw for image in images]))
        out = encode_images(self._model, pixels.to(device), grids.to(device))
        return {
            image.key: Features(out.tokens[index], tuple(tap[index] for tap in out.deepstack))
            for index, image in enumerate(images)
        }
