"""The gate of one episode: what an agent's tool left there, for the episode's record.

Invariant: what an episode keeps of its gate is whole once the episode has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cua_lab.computer.tool import ComputerTool
from cua_lab.safety.gate import Gate, GatedTool
from cua_lab.safety.judged import count


@dataclass(slots=True)
class GateSeat:
    """One episode's place at a gate."""

    gate: Gate
    episode: str
    tool: GatedTool | None = None

    def wrap(self, tool: ComputerTool) -> GatedTool:
        """The tool behind the gate."""
        self.tool = self.gate.on(tool, episode=self.episode)
        return self.tool

    def record(self) -> dict[str, Any]:
        """What the episode keeps of the gate: its fields by name; none without a screen."""
        if self.tool is None:
            return {}
        judged = tuple(self.tool.judged)
        penalty = self.gate.penalty.of(count(judged))
        return {"judged": judged, "penalty": penalty, "secrets": frozenset(self.tool.secrets)}
