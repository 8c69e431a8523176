"""Which tokens of a conversation are the assistant's own, for any tokenizer with a chat template.

The conversation is rendered turn by turn; an assistant's text runs from the end of its generation
prompt to its end token, which belongs to it (a policy that is not taught to stop never stops). Each
stretch is encoded by itself, as a rollout does, so no token straddles said and unsaid text.

Invariant: the masked-in ids decode to exactly the assistant's texts; a template for which this
cannot be had (it rewrites earlier turns) is refused with the turn that differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cua_lab.errors import LabError
from cua_lab.policy.protocols import Tokenizer
from cua_lab.policy.spelling import encode_marked, unmark
from cua_lab.policy.template import marked_text


@dataclass(frozen=True, slots=True)
class Masked:
    """A conversation's ids, one pad id an image, and whose each id is."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]
    """1 where the assistant said it, end token included."""
    texts: tuple[str, ...]
    """What the assistant said, turn by turn, end tokens included."""

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.mask):
            raise ValueError(f"{len(self.ids)} ids but {len(self.mask)} mask entries")


def mask_assistant(
    tokenizer: Tokenizer,
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None = None,
) -> Masked:
    """The ids of a conversation and the assistant's mask."""
    ids: list[int] = []
    mask: list[int] = []
    said = []
    for text, own in assistant_pieces(tokenizer, messages, tools):
        piece = encode_marked(tokenizer, text)
        ids += piece
        mask += [int(own)] * len(piece)
        if own:
            said.append(unmark(text))
    return Masked(tuple(ids), tuple(mask), tuple(said))


def assistant_pieces(
    tokenizer: Tokenizer,
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None = None,
) -> list[tuple[str, bool]]:
    """The rendered, marked conversation as (text, is it the assistant's?) in order."""
    whole = marked_text(tokenizer, messages, tools, add_generation_prompt=False)
    ends = _end_tokens(tokenizer)
    pieces: list[tuple[str, bool]] = []
    done = 0
    for turn, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        before = marked_text(tokenizer, messages[:turn], tools)
        after = marked_text(tokenizer, messages[: turn + 1], tools, add_generation_prompt=False)
        _check_prefix(before, after, turn, "the generation prompt")
        _check_prefix(after, whole, turn, "the conversation up to here")
        end = _end_of(after, len(before), ends, turn)
        pieces += [(whole[done : len(before)], False), (whole[len(before) : end], True)]
        done = end
    return [*pieces, (whole[done:], False)]


def _check_prefix(start: str, text: str, turn: int, what: str) -> None:
    if text.startswith(start):
        return
    common = next(
        (i for i, (a, b) in enumerate(zip(start, text, strict=False)) if a != b),
        min(len(start), len(text)),
    )
    raise LabError(
        f"message {turn}: {what} is not a prefix of what the template renders later;"
        f" at character {common} {start[common : common + 40]!r} became"
        f" {text[common : common + 40]!r}. The template rewrites earlier turns, so no mask"
        " is right: use a prefix-preserving template"
    )


def _end_tokens(tokenizer: Tokenizer) -> tuple[str, ...]:
    added = tokenizer.added_tokens_decoder.values()
    return tuple({token.content for token in added if token.special} | {tokenizer.eos_token or ""})


def _end_of(text: str, start: int, ends: tuple[str, ...], turn: int) -> int:
    """Where the assistant's text ends: after its last special token, before white space."""
    found = [
        text.rfind(end, start) + len(end) for end in ends if end and text.rfind(end, start) >= 0
    ]
    if not found or text[max(found) :].strip():
        raise LabError(
            f"message {turn}: the template ends the assistant's turn with {text[-20:]!r}, not with"
            " one of the tokenizer's special tokens; a policy could not learn to stop"
        )
    return max(found)
