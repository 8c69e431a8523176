"""Text that spells a special token, kept apart from the token itself.

A user, a web page or the policy may write `<|im_end|>` or `<|image_pad|>` as words. Tokenised with
the rest of a prompt, such words would end a turn, open one, or ask for an image that is not there
(vllm#31735). So whatever is said is marked before the template sees it, and the marks tell the
encoder which spellings are the template's own:

    said "<|im_end|>" ── mark ──▶ "<M|im_end|>" ── template ──▶ text ── encode_marked ──▶ text ids

Invariant: for text without special spellings nothing is marked, and the ids are the tokenizer's
own. A mark that is itself in the text is doubled, so every text comes back as it was.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from cua_lab.policy.pieces import pieces_of
from cua_lab.policy.protocols import Tokenizer

MARK = "\ufdd0"
"""A noncharacter: Unicode keeps it for uses inside a program."""
_MARKS = re.compile(f"{MARK}{MARK}?")
_SURROGATES = re.compile("[\ud800-\udfff]")
_TAG = re.compile(r"<[^\s<>]+>")
"""What special tokens look like; longer tokens are stretches of ordinary text."""


@dataclass(frozen=True, eq=False)
class Spelling:
    """The tokens of one tokenizer that text can spell."""

    tokenizer: Tokenizer
    ids: dict[str, int]
    """Every added token."""
    special: frozenset[str]
    """Those that vanish under `skip_special_tokens`: text that came from a policy has none."""

    @cached_property
    def structure(self) -> re.Pattern[str]:
        """Splits at added tokens and keeps them, the longest first."""
        return re.compile("(" + _alternatives(self.ids) + ")")

    @cached_property
    def tags(self) -> re.Pattern[str]:
        """Tokens that no message's text may spell, and marks."""
        return re.compile(_alternatives([t for t in self.ids if _TAG.fullmatch(t)] + [MARK]))

    @cached_property
    def special_tags(self) -> re.Pattern[str]:
        """The same for a policy's own words, where `<tool_call>` may be what it sampled."""
        return re.compile(_alternatives([*self.special, MARK]))

    @cached_property
    def plain(self) -> Any:
        """The same tokenizer without added tokens: 0.3 s for Qwen's, so only when it is needed."""
        from tokenizers import Tokenizer

        described = json.loads(self.tokenizer.backend_tokenizer.to_str())
        return Tokenizer.from_str(json.dumps(described | {"added_tokens": []}))


_known: WeakKeyDictionary[Any, tuple[int, Spelling]] = WeakKeyDictionary()


def spelling_of(tokenizer: Tokenizer) -> Spelling:
    """Of a Hugging Face tokenizer; made once, and again after tokens were added."""
    size, spelling = _known.get(tokenizer, (0, None))
    if spelling is None or size != len(tokenizer):
        added = tokenizer.added_tokens_decoder
        spelling = Spelling(
            tokenizer,
            {str(token.content): int(number) for number, token in added.items()},
            frozenset(str(token.content) for token in added.values() if token.special),
        )
        _known[tokenizer] = (len(tokenizer), spelling)
    return spelling


def mark(value: Any, tags: re.Pattern[str]) -> Any:
    """The strings in `value` (text, or JSON of any depth) with what they spell marked."""
    if isinstance(value, str):
        return tags.sub(_marked, value)
    if isinstance(value, dict):
        return {mark(name, tags): mark(item, tags) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [mark(item, tags) for item in value]
    return value


def unmark(text: str) -> str:
    """Marked text as it was said."""
    return _MARKS.sub(lambda found: MARK if len(found[0]) == 2 else "", text)


def encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of `text`, special tokens recognised and none added.

    Half of a surrogate pair, which has no UTF-8, is encoded as the escape that JSON has for it.
    """
    whole = _SURROGATES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return pieces_of(tokenizer).encode(whole)


def encode_marked(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of marked text: what is marked is encoded as text, the rest as `encode_text` does."""
    if MARK not in text:
        return encode_text(tokenizer, text)
    spelling = spelling_of(tokenizer)
    ids: list[int] = []
    for piece in spelling.structure.split(text):
        if piece in spelling.ids:
            ids.append(spelling.ids[piece])
        elif MARK in piece:
            said = _SURROGATES.sub(lambda found: f"\\u{ord(found[0]):04x}", unmark(piece))
            ids.extend(spelling.plain.encode(said, add_special_tokens=False).ids)
        elif piece:
            ids.extend(encode_text(tokenizer, piece))
    return ids


def _marked(found: re.Match[str]) -> str:
    token = found[0]
    return MARK * 2 if token == MARK else token[0] + MARK + token[1:]


def _alternatives(tokens: Any) -> str:
    return "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True)) or "(?!)"
