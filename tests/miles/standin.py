"""What the plug-in uses of Miles, and nothing else: a `Sample` with its status and `validate()`.

Kept beside the real class: where `miles` can be imported, the same tests run on it too.
"""

import enum
import importlib.util
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest


class Status(enum.Enum):
    PENDING = "pending"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass
class StandIn:
    """The fields that are read or written."""

    group_index: int | None = None
    index: int | None = None
    tokens: list[int] = field(default_factory=list)
    multimodal_train_inputs: dict[str, Any] | None = None
    response: str = ""
    response_length: int = 0
    reward: float | None = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    remove_sample: bool = False
    rollout_id: int | None = None
    status: Status = Status.PENDING
    metadata: dict = field(default_factory=dict)

    Status = Status

    def validate(self) -> None:
        """Miles' rules over these fields."""
        assert 0 <= self.response_length <= len(self.tokens)
        for values in (self.loss_mask, self.rollout_log_probs):
            assert values is None or len(values) == self.response_length


def sample_classes() -> list[Any]:
    """The stand-in, and Miles' own class where there is one."""
    classes: list[Any] = [pytest.param(StandIn, id="stand-in")]
    if importlib.util.find_spec("miles") is not None:
        from miles.utils.types import Sample

        classes.append(pytest.param(Sample, id="miles"))
    return classes


def reward_args(**changes: Any) -> SimpleNamespace:
    """What `post_process_rewards` reads of Miles' args."""
    values = {"advantage_estimator": "grpo", "grpo_std_normalization": True}
    return SimpleNamespace(**values | changes)
