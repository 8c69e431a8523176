"""A `Turn` is one model call, token for token as the server returned it.

Invariant: where log-probabilities are present there is exactly one for each output id.
"""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WeightSpan:
    """Output tokens [start, end) of one turn were sampled from one version of the weights."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call of an episode."""

    prompt_ids: tuple[int, ...]
    """Everything the server saw, images expanded to one id per visual token."""
    output_ids: tuple[int, ...]
    """What the policy sampled, the stop token included when it was sampled."""
    output_logprobs: tuple[float, ...] | None = None
    """One per output id, of the distribution sampled from; `None` where the server gave none."""
    finish_reason: str = "stop"
    """As the server said it: `stop`, `tool_calls`, `length`, ..."""
    weight_version: str | None = None
    """The weights that sampled it; `None` where the server does not say."""
    truncated: bool = False
    """Cut off by the token limit, found by counting ids: a server may call this `tool_calls`."""
    weight_spans: tuple[WeightSpan, ...] = ()
    """Set where the weights changed while the turn was sampled."""
    images: tuple[str, ...] | None = None
    """The `image_key` of each image that the request showed, in order; `None` where that is not
    known. A prompt need not show every screenshot so far: an agent may send the last few."""
    packed_prompt: bytes = field(init=False, repr=False, compare=False)
    """`prompt_ids` as int32, so that a prefix of any length is verified by one memcmp."""

    def __post_init__(self) -> None:
        logprobs = self.output_logprobs
        if logprobs is not None and len(logprobs) != len(self.output_ids):
            raise ValueError(
                f"a turn has {len(self.output_ids)} output ids but {len(logprobs)}"
                " log-probabilities; take both from the same array of the server's answer"
            )
        object.__setattr__(self, "packed_prompt", pack(self.prompt_ids))


def image_key(encoded: bytes) -> str:
    """The name of an encoded image: equal bytes, equal name."""
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()


def pack(ids: tuple[int, ...]) -> bytes:
    """Ids as int32 in the machine's order."""
    return array("i", ids).tobytes()
