"""Encoding by pieces: text between two added tokens is encoded once and remembered.

Most of a prompt is the same in every episode (system prompt, schema, tool results), and a fast
tokenizer cuts text at its added tokens before anything else, so the ids of the pieces in a row are
the ids of the whole. Invariant: `Pieces.encode` equals the tokenizer's own answer, id for id; where
an added token takes white space beside it with it, the whole text is encoded as ever.
"""

from __future__ import annotations

import re
from typing import Any
from weakref import WeakKeyDictionary

from cua_lab.policy.protocols import Tokenizer

REMEMBERED = 4096
"""Pieces a tokenizer keeps; thoughts and coordinates are new ones all the time."""


class Pieces:
    """A tokenizer with a memory."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.size = len(tokenizer)
        added = [
            token
            for token in getattr(tokenizer, "added_tokens_decoder", {}).values()
            if token.content
        ]
        plain = not any(token.lstrip or token.rstrip or token.single_word for token in added)
        names = sorted((re.escape(token.content) for token in added), key=len, reverse=True)
        self._cuts = re.compile(f"({'|'.join(names)})") if names and plain else None
        self._known: dict[str, tuple[int, ...]] = {}

    @property
    def cuts(self) -> bool:
        """Whether text is cut at every added token, so that parts may be encoded on their own."""
        return self._cuts is not None

    def encode(self, text: str) -> list[int]:
        """Ids, special tokens recognised and none added."""
        if self._cuts is None:
            return self._ids(text)
        return [id for piece in self._cuts.split(text) if piece for id in self._piece(piece)]

    def _piece(self, piece: str) -> tuple[int, ...]:
        found = self._known.get(piece)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()  # two threads may be here at once: no order to keep
            found = self._known[piece] = tuple(self._ids(piece))
        return found

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


_OF: WeakKeyDictionary[Any, Pieces] = WeakKeyDictionary()


def pieces_of(tokenizer: Tokenizer) -> Pieces:
    """The memory of a tokenizer; a new one once tokens were added to it."""
    pieces = _OF.get(tokenizer)
    if pieces is None or pieces.size != len(tokenizer):
        pieces = _OF[tokenizer] = Pieces(tokenizer)
    return pieces
