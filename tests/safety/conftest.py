"""A gated tool on a recording client: what reaches the wire, under a context that tests choose."""

import struct
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.tool import ComputerTool
from cua_lab.desktop.screen_context import Element, Form, ScreenContext

DELETE = ScreenContext(url="http://e1.localhost/mail", pointed=Element("button", "Delete all"))
PLAIN = ScreenContext(url="http://e1.localhost/mail", pointed=Element("button", "Continue"))
SHELL = ScreenContext(focused=Element("textbox", "Command line", "text", form=Form()))


@dataclass
class Wire:
    """Stands where HUD's client stands; `events` is what reached the screen."""

    events: list = field(default_factory=list)
    width: int = 128
    height: int = 128

    def __post_init__(self) -> None:
        self.conn = SimpleNamespace(writer=self)
        self.capability = SimpleNamespace(url="rfb://127.0.0.1:1")

    def write(self, data: bytes) -> None:
        while data:
            if data[0] == 4:
                _, down, keysym = struct.unpack(">BBxxI", data[:8])
                self.events.append(("down" if down else "up", keysym))
                data = data[8:]
            else:
                self.events.append(("point", *struct.unpack(">BBHH", data[:6])[1:]))
                data = data[6:]

    def is_closing(self) -> bool:
        return False

    async def drain(self) -> None:
        pass


@dataclass
class Bench:
    """A screen whose pixels and context a test sets."""

    context: ScreenContext = PLAIN
    wire: Wire = field(default_factory=Wire)
    pixels: np.ndarray = field(default_factory=lambda: np.zeros((128, 128, 3), np.uint8))

    def gated(self, gate, **more):
        async def settle(tool):
            return self.pixels

        async def look(at, to):
            return self.context

        tool = ComputerTool(client=self.wire, config=ToolConfig(pace_ms=0, settle=settle))
        return gate.on(tool, looker=look, **more)

    @property
    def events(self) -> list:
        return self.wire.events


@pytest.fixture
def bench() -> Bench:
    return Bench()


def words(result) -> str:
    return "".join(part.text for part in result.content if part.type == "text")
