"""A recording RFB client: a desktop that answers nothing and remembers every event."""

import struct
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.tool import ComputerTool


@dataclass
class Recorder:
    """Stands where HUD's RFBClient stands; `events` is what reached the wire."""

    width: int = 128
    height: int = 128
    events: list = field(default_factory=list)
    writes: int = 0
    broken_at: int | None = None
    """The drain that fails, counted from 1."""
    drains: int = 0

    def __post_init__(self) -> None:
        self.conn = SimpleNamespace(writer=self)
        self.capability = SimpleNamespace(url="rfb://127.0.0.1:1")

    def write(self, data: bytes) -> None:
        self.writes += bool(data)
        while data:
            if data[0] == 4:
                _, down, keysym = struct.unpack(">BBxxI", data[:8])
                self.events.append(("down" if down else "up", keysym))
                data = data[8:]
            else:
                _, buttons, x, y = struct.unpack(">BBHH", data[:6])
                self.events.append(("point", x, y, buttons))
                data = data[6:]

    def is_closing(self) -> bool:
        return False

    async def drain(self) -> None:
        self.drains += 1
        if self.drains == self.broken_at:
            raise ConnectionResetError("gone")

    def tool(self, **config) -> ComputerTool:
        shot = np.zeros((self.height, self.width, 3), np.uint8)

        async def settle(screen) -> np.ndarray:
            return shot

        return ComputerTool(
            client=self, config=ToolConfig(**{"pace_ms": 0, "settle": settle} | config)
        )
