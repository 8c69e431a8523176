"""What is asked of the engine, and what comes of it.

Invariant: a choice has one log-probability per id, and one state of the weights sampled all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cua_lab.engine.prompt import Prompt
from cua_lab.engine.sequences import Top
from cua_lab.engine.token_sampling import SamplingParams


@dataclass(frozen=True, slots=True, eq=False)
class GenerationRequest:
    """One prompt, sampled `n` times."""

    prompt: Prompt
    params: SamplingParams = field(default_factory=SamplingParams)
    n: int = 1
    top: int = 0
    """Alternatives to report per token."""
    score_from: int | None = None
    """Also score the prompt's tokens from this index on."""
    slot: int | None = None
    """The episode's seat: see `rounds`. `None`: run with whatever is there."""
    on_token: Callable[[int, int, float, Top], None] | None = None
    """Called as `(choice, id, logprob, top)` in the event loop while it runs."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One output."""

    ids: tuple[int, ...]
    """The stop token included when it was sampled."""
    logprobs: tuple[float, ...]
    """One per id."""
    tops: tuple[Top, ...]
    """One per id where asked for; for an output of no tokens, what would have come."""
    finish: str
    """`stop` or `length`."""
    matched: int | str | None
    """The token id or stop string that ended it."""
    seed: int
    """That drew it, with its index among the choices."""


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """What came of a request."""

    prompt: Prompt
    choices: tuple[Choice, ...]
    prompt_logprobs: tuple[float, ...]
    """From index `max(score_from, 1)` on, where asked for."""
    cached_tokens: int
    weight_version: str
