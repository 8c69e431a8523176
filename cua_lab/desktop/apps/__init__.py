"""The lab's apps: each draws itself with Pillow, from a seed, at any size from 96 pixels on."""

from __future__ import annotations

from cua_lab.desktop.apps.errands import Errands
from cua_lab.desktop.apps.game2048 import Game2048
from cua_lab.desktop.apps.targets import Targets
from cua_lab.desktop.apps.todo import Todo

__all__ = ["Errands", "Game2048", "Targets", "Todo"]
