"""Trainer and engine under Miles: the log-probabilities that its FSDP trainer would compute."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cua_lab.errors import LabError
from cua_lab.miles.train_inputs import Positions, positions_for
from cua_lab.policy.policy import Policy
from tests.miles.fsdp_standin import logprobs, packers
from tests.miles.standin import StandIn
from tests.miles.test_convert import PAD, TOKENS, part
from tests.miles.test_generate import members, play

Packer = Callable[[list[Any], int], dict[str, Any]]
MULTIPLE = 128


@pytest.fixture(scope="module")
def episodes(session_args: Any) -> list[Any]:
    """Three played ones; the fourth of `members` fails."""
    return play(session_args, members(StandIn)[:3])


@pytest.fixture(params=packers())
def pack(request: pytest.FixtureRequest) -> Packer:
    return request.param


def gap(pack: Packer, policy: Policy, sample: Any) -> float:
    """Largest difference to the engine on a policy token."""
    ours = logprobs(policy, pack([sample], MULTIPLE), sample)
    kept = torch.tensor(sample.loss_mask, dtype=torch.bool)
    return float((ours - torch.tensor(sample.rollout_log_probs))[kept].abs().max())


def test_miles_fsdp_trainer_agrees_with_the_engine(
    pack: Packer, episodes: list[Any], warm_policy: Policy
) -> None:
    assert max(gap(pack, warm_policy, sample) for sample in episodes) < 1e-4


def test_with_miles_own_numbers_it_does_not(
    pack: Packer, episodes: list[Any], warm_policy: Policy
) -> None:
    """What the inputs are for: a line instead of three axes."""
    for sample in episodes:
        inputs = dict(sample.multimodal_train_inputs)
        del inputs["position_ids"]
        bare = SimpleNamespace(**vars(sample) | {"multimodal_train_inputs": inputs})
        assert gap(pack, warm_policy, bare) > 0.01


def test_positions_are_as_wide_as_miles_pads(pack: Packer, episodes: list[Any]) -> None:
    for sample in episodes:
        arguments = pack([sample], MULTIPLE)
        assert arguments["position_ids"].shape == (3, 1, arguments["input_ids"].shape[1])
        assert arguments["input_ids"].shape[1] % MULTIPLE == 0


def test_positions_by_hand() -> None:
    """One token, a block of 2 x 2, four tokens from where the block's longest side ends."""
    made = Positions(image_token_id=PAD, merge=2, multiple=4)(part(0, 1))
    assert made.dtype == np.int64
    assert made[:, 0, : len(TOKENS)].tolist() == [
        [0, 1, 1, 1, 1, 3, 4, 5, 6],
        [0, 1, 1, 2, 2, 3, 4, 5, 6],
        [0, 1, 2, 1, 2, 3, 4, 5, 6],
    ]
    assert made[:, 0, len(TOKENS) :].tolist() == [[0] * 3] * 3


def args(**changes: Any) -> SimpleNamespace:
    values = {
        "train_backend": "fsdp",
        "micro_batch_size": 1,
        "use_dynamic_batch_size": False,
        "data_pad_size_multiplier": MULTIPLE,
        "hf_checkpoint": "/models/qwen",
    }
    return SimpleNamespace(**values | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"micro_batch_size": 2}, "--micro-batch-size 2"),
        ({"use_dynamic_batch_size": True}, "--use-dynamic-batch-size"),
    ],
)
def test_several_samples_a_micro_batch_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(LabError, match=words):
        positions_for(args(**changes), image_token_id=9, merge=2)


def test_megatrons_models_make_their_own() -> None:
    assert positions_for(args(train_backend="megatron"), image_token_id=9, merge=2) is None
    assert positions_for(args(), image_token_id=9, merge=2) == Positions(9, 2, MULTIPLE)
