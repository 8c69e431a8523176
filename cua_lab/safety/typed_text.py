"""What a typed text is: a card's number, a password or key, a command for a shell.

    text + the field it goes to ──text_effects──▶ Effects

Invariant: every pattern is looked for in a bounded piece of text, and none has a repeat inside of a
repeat, so the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cua_lab.safety.effect_kinds import Effect

if TYPE_CHECKING:
    from cua_lab.desktop.screen_context import Element

LONGEST = 4000
"""Characters that are looked at; the tool takes at most 2000 in a call."""
_CARD = re.compile(r"(?<!\d)\d(?:[ .\-_]{0,2}\d){12,18}(?!\d)")
"""No slash between digits: nobody writes a card so, and a board that was read is told so, in 16 to
20 of them, of which one in ten ends in its check digit."""
SECRETS = (
    re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"\b(?:ghp|gho|ghs|ghu|glpat|github_pat|xox[abps]|sk|pk|rk|hf)[_-]\w[\w-]{15,200}"),
    re.compile(r"\beyJ[\w-]{8,2000}\.eyJ[\w-]{8,2000}"),
    re.compile(
        r"\b(?:pass(?:word|phrase|code)?|pwd|secret|token|api[_ -]?key)\s{0,3}[:=]\s{0,3}\S{4,200}",
        re.I,
    ),
)  # fmt: skip
"""Private keys, cloud and forge tokens, JSON web tokens, and what is written beside its name."""
SHELL = re.compile(
    r"(?:^|[\n;&|(`]|\$\()\s{0,4}(?:sudo|su|rm|mv|dd|mkfs\S{0,20}|chmod|chown|curl|wget|nc|ncat|ssh|scp"
    r"|bash|sh|zsh|powershell|pwsh|cmd(?:\.exe)?|eval|exec|kill|killall|pkill|shutdown|reboot|apt"
    r"|apt-get|yum|dnf|brew|pip3?|npm|npx|docker|python3?|perl|crontab|systemctl)"
    r"\s{1,4}(?:[-./~$\w'\"{]|\\)",
    re.I,
)
PIPED = re.compile(
    r"\|\s{0,4}(?:sudo\s{1,4})?(?:ba|z|da|k)?sh\b|rm\s{1,4}-\w{0,8}[rf]|:\(\)\s{0,2}\{"
)
SECRET_NAMES = re.compile(
    r"pass ?(?:word|phrase|code)|\bpin\b|\bcvv\b|\bcvc\b|security code|secret|token|api key"
    r"|one-time|verification code"
    r"|recovery|seed phrase|social security|\bssn\b|passwort|mot de passe"
    r"|contraseña",
    re.I,
)
CARD_NAMES = re.compile(r"card ?number|credit card|debit card|kartennummer|\biban\b", re.I)
SHELL_NAMES = re.compile(r"\b(?:terminal|shell|console|command line|command prompt)\b", re.I)
SECRET_KINDS = ("password", "current-password", "new-password", "one-time-code")
CARD_KINDS = ("cc-number", "cc-csc", "cc-exp")


def is_card(digits: str) -> bool:
    """Whether 13 to 19 digits end in their check digit (ISO/IEC 7812, Luhn)."""
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1:
        return False
    numbers = [int(d) for d in reversed(digits)]
    doubled = [d * 2 - 9 * (d > 4) for d in numbers[1::2]]
    return (sum(numbers[::2]) + sum(doubled)) % 10 == 0


def card_in(text: str) -> str | None:
    """The first card's number in a text, as it is written there."""
    for found in _CARD.finditer(text):
        if is_card(re.sub(r"\D", "", found.group())):
            return found.group()
    return None


def _wants_secret(field: Element) -> bool:
    return field.kind in SECRET_KINDS or bool(SECRET_NAMES.search(field.name[:200]))


def _wants_card(field: Element) -> bool:
    return field.kind in CARD_KINDS or bool(CARD_NAMES.search(field.name[:200]))


def text_effects(text: str, field: Element | None) -> Iterator[Effect]:
    """What typing this text into a field is; `text` is all that stands there so far."""
    text = text[-LONGEST:]
    place = "the page" if field is None else field.words
    if (field is not None and _wants_card(field)) or card_in(text):
        yield Effect("type_card", f"a card's number into {place}", text)
    if field is not None and _wants_secret(field):
        yield Effect("type_secret", f"a secret into {place}", text)
    elif any(pattern.search(text) for pattern in SECRETS):
        yield Effect("type_secret", f"what looks like a key or a password into {place}", text)
    if SHELL.search(text) or PIPED.search(text):
        yield Effect("shell_command", f"what a shell would run into {place}", text)
    elif field is not None and SHELL_NAMES.search(field.name[:200]):
        yield Effect("shell_command", f"text into {place}", text)
