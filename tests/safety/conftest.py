"""A gated tool on a recording client: what reaches the wire, under a context that tests choose."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.tool import ComputerTool
from cua_lab.desktop.screen_context import Element, Form, ScreenContext
from tests.support_wire import Recorder

DELETE = ScreenContext(url="http://e1.localhost/mail", pointed=Element("button", "Delete all"))
PLAIN = ScreenContext(url="http://e1.localhost/mail", pointed=Element("button", "Continue"))
SHELL = ScreenContext(focused=Element("textbox", "Command line", "text", form=Form()))


@dataclass
class Bench:
    """A screen whose pixels and context a test sets."""

    context: ScreenContext = PLAIN
    wire: Recorder = field(default_factory=Recorder)
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
