"""What a gate remembers of one episode: enough to judge the next action.

Invariant: it grows only with what was executed or asked, and holds no more text than a pattern can
look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cua_lab.desktop.screen_context import ScreenContext
from cua_lab.safety.element_effects import host_of
from cua_lab.safety.key_effects import ADDRESS_BAR, MENU, text_of_chords
from cua_lab.safety.typed_text import LONGEST

if TYPE_CHECKING:
    from cua_lab.computer.schema import Call
    from cua_lab.safety.effect_kinds import Effect


@dataclass(slots=True)
class History:
    """One episode so far."""

    home: str | None = None
    """The host that it began on."""
    typed: str = ""
    """Since the focus last moved: pieces of one text."""
    over: str = ""
    """What lies over the page after the last action: `bar`, `menu` or nothing."""
    counts: Counter[str] = field(default_factory=Counter)
    """Actions so far by risk, and effects by kind."""

    def seen(self, context: ScreenContext) -> ScreenContext:
        """The context with what only the past can tell: an open menu, the address bar's focus."""
        if self.home is None and context.known and context.url:
            self.home = host_of(context.url)
        if self.over == "menu":
            return replace(context, known=False, why=MENU)
        if self.over == "bar":
            return replace(context, focused=ADDRESS_BAR)
        return context

    def did(self, call: Call, effects: Iterable[Effect]) -> None:
        """An action was executed."""
        kinds = {effect.kind for effect in effects}
        self.counts.update(kinds)
        if call.action in ("type", "press"):
            self._typed(call, kinds)
        elif call.action in ("click", "double_click", "triple_click", "drag"):
            self.typed, self.over = "", "menu" if "context_menu" in kinds else ""

    def _typed(self, call: Call, kinds: set[str]) -> None:
        text = text_of_chords(call.chords)
        moved = kinds & {"move", "unknown", "open_site", "reload", "submit_form", "query"}
        self.typed = text if moved else (self.typed + text)[-LONGEST:]
        if "context_menu" in kinds:
            self.over = "menu"
        elif "address_bar" in kinds and "open_site" not in kinds:
            self.over = "bar"
        elif self.over != "bar" or kinds & {"open_site", "move"} or "\n" in text:
            self.over = ""
