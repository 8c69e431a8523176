"""Secrets out of everything that is written down.

    any JSON value + the secrets that an episode typed ──redact──▶ the same value without them

Used by the audit log, episodes, viewers and reports alike. Invariant: neither a secret of the list
nor anything that looks like a card's number or a key is left in the result, in one string or spelt
as a list of keys.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from cua_lab.safety.typed_text import SECRETS, card_in

MARK = "[redacted]"
SHORTEST = 4
"""Characters: shorter secrets stand in too many words. A call that types one is redacted whole."""


def redact(value: Any, secrets: Collection[str] = ()) -> Any:
    """A copy of plain values (str, list, dict, numbers) without secrets."""
    known = sorted({s for s in secrets if len(s) >= SHORTEST}, key=len, reverse=True)
    return _redacted(value, known)


def _redacted(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        return redact_text(value, secrets)
    if isinstance(value, dict):
        return {key: _redacted(item, secrets) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if _spelt(value, secrets):
            return [MARK]
        return [_redacted(item, secrets) for item in value]
    return value


def _spelt(items: list[Any] | tuple[Any, ...], secrets: list[str]) -> bool:
    """Whether a list of keys spells a secret, letter by letter."""
    letters = "".join(item for item in items if isinstance(item, str) and len(item) == 1)
    return len(letters) >= SHORTEST and redact_text(letters, secrets) != letters


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """One text without these secrets and without what looks like one."""
    for secret in secrets:
        text = text.replace(secret, MARK)
    for pattern in SECRETS:
        text = pattern.sub(MARK, text)
    while (card := card_in(text)) is not None:
        text = text.replace(card, MARK)
    return text


def redact_call(
    arguments: dict[str, Any], secrets: Collection[str], *, typed: bool
) -> dict[str, Any]:
    """A call's arguments; with `typed`, one that typed a secret, nothing of the text remains."""
    kept: dict[str, Any] = redact(arguments, secrets)
    if not typed:
        return kept
    whole: dict[str, Any] = {"text": MARK, "keys": [MARK]}
    return {key: whole.get(key, value) for key, value in kept.items()}
