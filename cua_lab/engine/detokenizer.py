"""Ids back to text, one token or a whole output; special tokens show only in the former."""

from __future__ import annotations

from collections.abc import Sequence

from cua_lab.policy.protocols import Tokenizer


class Detokenizer:
    """Text of ids, remembered per id."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, str] = {}

    def token(self, token: int) -> str:
        """One token; U+FFFD for a piece of a character."""
        text = self._known.get(token)
        if text is None:
            text = self._known[token] = self.text([token], skip_special=False)
        return text

    def text(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """A run of ids."""
        return str(
            self._tokenizer.decode(
                list(ids), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
            )
        )
