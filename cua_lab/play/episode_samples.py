"""From an episode to what training gets of it.

    Episode ──stitch──▶ sequences ──screenshots──▶ Samples, or one write-off with its reason

Invariant: a fault of one answer or of one screenshot costs that episode, never the run: it becomes
one failed sample that says why. What is left to raise is a fault of this package.
"""

from __future__ import annotations

from dataclasses import replace

from cua_lab.play.episode import Episode
from cua_lab.stitching.codec import TokenCodec
from cua_lab.stitching.episode_images import ImageMismatch, Patchifier, episode_images
from cua_lab.stitching.growing import UnusableTurn
from cua_lab.stitching.sample import Sample, failed_sample, samples_of
from cua_lab.stitching.stitch import AfterRewrite, stitch


def episode_samples(
    episode: Episode,
    codec: TokenCodec,
    patchifier: Patchifier,
    *,
    merge: int = 2,
    after_rewrite: AfterRewrite = "truncate",
    max_tokens: int | None = None,
    images_only: bool = False,
) -> list[Sample]:
    """The samples of an episode: one for each sequence, or its write-off.

    `images_only` leaves out sequences that show no image: under FSDP every rank must run the vision
    tower equally often (miles#2406).
    """

    def write_off(reason: str) -> list[Sample]:
        return [
            failed_sample(
                group=episode.group,
                episode=episode.id,
                reason=reason,
                codec=codec,
                patchifier=patchifier,
                merge=merge,
            )
        ]

    reason = unusable(episode, max_tokens)
    if reason or episode.trained_reward is None:
        return write_off(reason)
    try:
        sequences = stitch(episode.turns, codec, after_rewrite=after_rewrite, max_tokens=max_tokens)
        if images_only:
            seen = (s for s in sequences if any(part.role == "image" for part in s.segments))
            sequences = list(seen)
        if not sequences:
            return write_off("no kept turn shows a screenshot")
        return samples_of(
            sequences,
            episode_images(episode.screenshots, patchifier, merge=merge),
            reward=episode.trained_reward,
            group=episode.group,
            episode=episode.id,
            status=episode.status,
        )
    except (UnusableTurn, ImageMismatch) as error:
        return write_off(str(error))


def unusable(episode: Episode, max_tokens: int | None = None) -> str:
    """Why nothing of an episode can be trained, "" where something can."""
    if episode.reward is None:
        return episode.error or "no reason given"
    if not episode.turns:
        return "the policy was never asked"
    first = episode.turns[0]
    length = len(first.prompt_ids) + len(first.output_ids)
    if max_tokens is not None and length > max_tokens:
        return f"turn 0 has {length} tokens, more than {max_tokens}"
    return ""


def as_failed(episode: Episode, reason: str) -> Episode:
    """The same episode for the records, once training has found that it is of no use."""
    return replace(episode, reward=None, status="failed", success=None, info={}, error=reason)
