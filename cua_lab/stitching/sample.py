"""What training gets: a sequence with its pixels, its reward and its group.

Invariants, checked in the constructor: every image of the sequence has its patches; a reward is a
finite number, and only a failed episode has none. A failed sample has no response, so it trains
nothing and enters no statistic; it carries one dummy image because every rank must run the vision
tower equally often.

An episode that broke into several sequences becomes several samples with one reward, group and
episode. Statistics over a group count each episode once: those samples with `counts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from cua_lab.pictures import png_bytes
from cua_lab.stitching.codec import TokenCodec
from cua_lab.stitching.episode_images import EpisodeImages, Patchifier, episode_images
from cua_lab.stitching.ledger import TokenLedger
from cua_lab.stitching.stitched import Segment, Stitched

Status = Literal["completed", "truncated", "failed"]
DUMMY_SIDE = 64
"""px; the processor enlarges it where a family has a larger minimum."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One training sequence."""

    stitched: Stitched
    pixel_values: np.ndarray  # float32 (n_patches, patch_dim)
    image_grid_thw: np.ndarray  # int64 (n_images, 3)
    reward: float | None
    """The episode's; `None` if and only if it failed."""
    group: str
    """Episodes of one task from one start."""
    episode: str
    status: Status
    part: int = 0
    """Which sequence of its episode, from 0."""
    parts: int = 1
    """How many sequences the episode has."""
    reason: str = ""
    """Why the episode failed or ended early, for people."""
    screenshots: tuple[int, ...] = ()
    """Which of the episode's screenshots its images are, in order."""

    def __post_init__(self) -> None:
        self._check_reward()
        self._check_images()
        if not 0 <= self.part < self.parts:
            raise ValueError(f"episode {self.episode}: part {self.part} of {self.parts} parts")

    def _check_reward(self) -> None:
        if (self.reward is None) != (self.status == "failed"):
            raise ValueError(
                f"episode {self.episode} is {self.status} with reward {self.reward}; a missing"
                " reward is a failure, and a failure has no reward"
            )
        if self.reward is not None and not math.isfinite(self.reward):
            raise ValueError(f"episode {self.episode} has reward {self.reward}")
        if self.status == "failed" and any(self.stitched.loss_mask):
            raise ValueError(f"episode {self.episode} failed but has tokens to train on")

    def _check_images(self) -> None:
        images = sum(segment.role == "image" for segment in self.stitched.segments)
        patches = int(self.image_grid_thw.prod(axis=1).sum())
        if images != len(self.image_grid_thw) or patches != len(self.pixel_values):
            raise ValueError(
                f"episode {self.episode}: the sequence has {images} images, the grid"
                f" {len(self.image_grid_thw)} with {patches} patches, and there are"
                f" {len(self.pixel_values)} patches; take all from EpisodeImages.for_sequence"
            )

    @property
    def counts(self) -> bool:
        """Whether group statistics count it: once per episode, failures never."""
        return self.part == 0 and self.status != "failed"


def samples_of(
    sequences: Sequence[Stitched],
    images: EpisodeImages,
    *,
    reward: float,
    group: str,
    episode: str,
    status: Status = "completed",
    reason: str = "",
) -> list[Sample]:
    """One sample for each sequence of an episode; the pixels are shared."""
    made = []
    for part, stitched in enumerate(sequences):
        pixel_values, grid = images.for_sequence(stitched)
        made.append(
            Sample(
                stitched=stitched,
                pixel_values=pixel_values,
                image_grid_thw=grid,
                reward=reward,
                group=group,
                episode=episode,
                status=status,
                part=part,
                parts=len(sequences),
                reason=reason,
                screenshots=images.which(stitched),
            )
        )
    return made


def failed_sample(
    *,
    group: str,
    episode: str,
    reason: str,
    codec: TokenCodec,
    patchifier: Patchifier,
    merge: int = 2,
) -> Sample:
    """The write-off of an episode: one black image, an empty response, no reward."""
    images = episode_images([_black_png()], patchifier, merge=merge)
    stitched = _dummy_sequence(codec, int(images.image_grid_thw.prod()) // merge**2)
    pixel_values, grid = images.for_sequence(stitched)
    return Sample(
        stitched=stitched,
        pixel_values=pixel_values,
        image_grid_thw=grid,
        reward=None,
        group=group,
        episode=episode,
        status="failed",
        reason=reason,
    )


def _dummy_sequence(codec: TokenCodec, visual_tokens: int) -> Stitched:
    """One image block and nothing after it."""
    by_name = {name: token_id for token_id, name in codec.control.items()}
    if codec.image_pad_id is None:
        raise ValueError("a failed sample needs a policy with an image pad id")
    before, after = by_name["<|vision_start|>"], by_name["<|vision_end|>"]
    tokens = (before, *[codec.image_pad_id] * visual_tokens, after)
    end = len(tokens) - 1
    return Stitched(
        tokens=tokens,
        loss_mask=(),
        logprobs=(),
        response_start=len(tokens),
        segments=(
            Segment("prompt", 0, 1, 0),
            Segment("image", 1, end, 0),
            Segment("prompt", end, end + 1, 0),
        ),
        ledger=TokenLedger(),
    )


def _black_png() -> bytes:

    return png_bytes(Image.new("RGB", (DUMMY_SIDE, DUMMY_SIDE)))
