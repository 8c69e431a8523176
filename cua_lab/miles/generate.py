"""Miles' `--custom-generate-function-path`: one call plays one HUD episode.

    generate(args, sample, sampling_params) ──▶ [the sample, filled; further ones it became]

Invariant: what it returns satisfies Miles' `validate()`, whatever happened; a call that could only
give wrong data (a resumed rollout, cut distributions) ends the run before anything is played.
Always a list, with one `rollout_id`: Miles cannot sort a group that mixes lists and samples, and
asserts the id on every list of several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cua_lab.errors import LabError
from cua_lab.miles.convert import to_miles
from cua_lab.miles.episodes import EpisodeRequest, player_of
from cua_lab.miles.stopping import ends_the_run
from cua_lab.miles.train_inputs import positions_for
from cua_lab.seeds import derive_seed


@ends_the_run
async def generate(
    args: Any, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool = False
) -> list[Any]:
    """Play the sample's task and write the outcome into it; raises `RunEnds` alone."""
    refuse_partial(args, sample)
    if not evaluation:
        refuse_cut_distributions(sampling_params)
    player = player_of(args)
    positions = positions_for(
        args, image_token_id=player.codec.image_pad_id, merge=player.vision.geometry.merge
    )
    made = await player.samples(_ask(sample, sampling_params, evaluation))
    return to_miles(sample, made, player.tokenizer.decode, positions, evaluation=evaluation)


def refuse_partial(args: Any, sample: Any) -> None:
    """A screen cannot be put back to where an interrupted episode left it."""
    if args.partial_rollout:
        raise LabError(
            "partial_rollout is on: an interrupted episode would go on with new weights in a"
            " sandbox that is gone; start Miles without --partial-rollout"
        )
    if sample.response_length:
        raise LabError(
            f"sample {sample.index} already has a response of {sample.response_length} tokens:"
            " an episode cannot be taken up again; leave --partial-rollout and buffered samples out"
        )


def refuse_cut_distributions(sampling_params: Mapping[str, Any]) -> None:
    """sglang's log-probabilities know nothing of top_p and top_k."""
    top_p, top_k = sampling_params.get("top_p", 1.0), sampling_params.get("top_k", -1)
    if top_p != 1.0 or top_k not in (-1, 0):
        raise LabError(
            f"top_p is {top_p} and top_k {top_k}: the log-probabilities would be those of another"
            " distribution than was sampled from; train with --rollout-top-p 1 --rollout-top-k -1"
        )


def _ask(sample: Any, sampling_params: Mapping[str, Any], evaluation: bool) -> EpisodeRequest:
    hud_task = (sample.metadata or {}).get("hud_task")
    if not isinstance(hud_task, Mapping):
        raise LabError(
            f"sample {sample.index} has no metadata.hud_task: give Miles rows of `cua-lab data"
            " mint` as --prompt-data with --metadata-key metadata"
        )
    group = f"{'eval' if evaluation else 'group'}-{sample.group_index}"
    seed = sampling_params.get("sampling_seed")
    return EpisodeRequest(
        hud_task=hud_task,
        group=group,
        episode=f"{group}-{sample.index}",
        sampling=sampling_params,
        seed=None if seed is None else derive_seed("miles", int(seed), group, str(sample.index)),
    )
