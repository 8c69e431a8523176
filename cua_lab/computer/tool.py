"""The computer tool: one checked call in, one screenshot out.

    arguments ──parse_call──▶ Call ──key and pointer events──▶ desktop ──settle──▶ screenshot

Invariants: a call that is wrong in any part sends nothing and comes back as a tool error; whatever
happens, no key and no button stays down; every wait has a limit. A screen that stops answering
raises `DeadScreen`, which ends the episode as a failure: a broken desktop is not a bad move.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

import mcp.types as mcp_types
from hud.agents.tools.base import AgentToolSpec, tool_err
from hud.agents.tools.rfb import RFBTool
from hud.types import MCPToolResult
from PIL import Image

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.coordinates import View
from cua_lab.computer.framebuffer import Watch, read_frame
from cua_lab.computer.keys import CONTROL, SHIFT, UNICODE_KEYSYM, Chord
from cua_lab.computer.schema import (
    CLICKS,
    NAME,
    Call,
    CallError,
    Point,
    parse_call,
    tool_schema,
    view_of,
)
from cua_lab.computer.screen import BrokenTool, DeadScreen
from cua_lab.hud_quirks import reconnect
from cua_lab.pictures import base64_text, png_bytes
from cua_lab.policy.byte_cache import ByteCache
from cua_lab.policy.vision import made_here
from cua_lab.waiting import waiting

if TYPE_CHECKING:
    import numpy as np
    from hud.agents.types import ToolAgentConfig
    from hud.capabilities import RFBClient

T = TypeVar("T")
SPEC = AgentToolSpec(api_type="function", api_name=NAME)
WHEEL_UP, WHEEL_DOWN = 8, 16
DRAG_STEP_PX = 16
LEND_S = 0.1
"""Until every program has read the server's new table of keys."""
SMALL_FRAME = 2**18
"""Bytes of a frame that is compared with earlier ones before it is encoded: the embedded desktop's
128x128 are 48 KB, 0.03 ms to compare and 0.2 ms to encode. A browser's hardly ever come twice."""
_PNGS: ByteCache[tuple[bytes, tuple[int, ...], tuple[int, int]], bytes] = ByteCache(
    16 * 2**20, lambda png: SMALL_FRAME + len(png)
)
SPARE_KEYCODES = 19
"""Distinct non-Latin characters after which an X server has no keycode left to lend (measured)."""


class ComputerTool(RFBTool):
    """The whole screen behind one function; see `ToolConfig` for what may be chosen."""

    name = NAME

    def __init__(
        self, *, client: RFBClient, config: ToolConfig, spec: AgentToolSpec = SPEC
    ) -> None:
        super().__init__(spec=spec, client=client)
        self.config = config
        self._keys: list[int] = []  # held now, in order
        self._at: Point = (0, 0)
        self._buttons = 0
        self._events = bytearray()  # of this call, not yet written
        self._borrowed: set[int] = set()  # non-Latin characters typed so far
        self._lent: set[int] = set()  # characters that the screen's programs know by now
        self._watch: Watch | None = None  # of the connection that it was made for
        self._focused = not config.focus_click  # whether something on the screen has the keyboard

    @classmethod
    def default_spec(cls, model: str) -> AgentToolSpec:
        return SPEC

    @classmethod
    def from_config(
        cls, *, spec: AgentToolSpec, client: RFBClient, config: ToolAgentConfig
    ) -> Self:
        """The tool as an agent builds it: the agent's config has a `tool`, or the defaults rule."""
        tool = getattr(config, "tool", None)
        return cls(spec=spec, client=client, config=tool or ToolConfig())

    @property
    def view(self) -> View:
        """The desktop as the model sees it."""
        return view_of(self.config, (self.display_width, self.display_height))

    def to_params(self) -> dict[str, Any]:
        return tool_schema(self.config, (self.display_width, self.display_height))

    async def execute(self, arguments: dict[str, Any]) -> MCPToolResult:
        """Run one call: a screenshot, or an error in words when the call was wrong.

        Whatever else goes wrong ends the episode as failed: HUD would tell the policy of a
        `KeyError` of ours, and grade what it does then.
        """
        try:
            return await self._execute(arguments)
        except TimeoutError:  # also `DeadScreen`
            raise
        except Exception as error:
            raise BrokenTool(
                f"the computer tool failed: {type(error).__name__}: {error}"
            ) from error

    async def _execute(self, arguments: dict[str, Any]) -> MCPToolResult:
        try:
            call = self.parsed(arguments)
        except CallError as error:
            return tool_err(str(error))
        return await self.carry_out(call)

    def parsed(self, arguments: Mapping[str, Any]) -> Call:
        """The call as it would be sent; raises `CallError`."""
        return parse_call(arguments, self.view, self.config)

    async def carry_out(self, call: Call) -> MCPToolResult:
        """Send a checked call: exactly this one."""
        if call.action == "finish":  # alone in its turn it never gets here: the agent ends first
            return tool_err("finish must be the only call of its turn; call it again, alone")
        await self._perform(call)
        result = await self.screenshot()
        if note := self._note(call):
            result.content.insert(0, mcp_types.TextContent(type="text", text=note))
        return result

    # ─── seeing ───────────────────────────────────────────────────────

    async def screenshot(self) -> MCPToolResult:
        """The settled screen as a PNG of the width that the model sees."""
        png = encode_png(await self.settled(), self.view.size)
        image = mcp_types.ImageContent(type="image", mimeType="image/png", data=base64_text(png))
        return MCPToolResult(content=[image])

    async def settled(self) -> np.ndarray:
        """The whole screen at rest, (height, width, 3) RGB; valid until the next look."""
        return await self.config.settle(self)

    async def frame(self) -> np.ndarray:
        """The whole screen now, (height, width, 3) RGB; one new connection is tried."""
        return await self._persistently(self._read)

    async def change(self, wait_s: float) -> bool:
        """Whether the screen changed within this time; one new connection is tried."""
        return await self._persistently(lambda: self._changed(wait_s))

    def latest(self) -> np.ndarray:
        """The screen as of the last `change`."""
        assert self._watch is not None
        return self._watch.image

    async def _persistently(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read from the screen; if that fails, once more on a new connection."""
        try:
            return await read()
        except (OSError, EOFError, ValueError):  # TimeoutError is an OSError
            self._keys, self._buttons = [], 0  # a new connection holds nothing down
        try:
            async with waiting("the screen, on a new connection", self.config.screen_timeout_s):
                await reconnect(self.client)
            return await read()
        except (OSError, EOFError, ValueError) as error:
            raise DeadScreen(
                f"the screen sent no frame within {self.config.screen_timeout_s:g} s, nor after "
                f"a new connection ({type(error).__name__}: {error})"
            ) from error

    async def _read(self) -> np.ndarray:
        async with waiting("a frame of the screen", self.config.screen_timeout_s):
            if self._watch is not None and self._watch.conn is self.client.conn:
                raise OSError("a watched connection cannot ask for whole frames: dial anew")
            return await read_frame(self.client.conn)

    async def _changed(self, wait_s: float) -> bool:
        if self._watch is None or self._watch.conn is not self.client.conn:
            self._watch = Watch(self.client.conn)
        return await self._watch.change(wait_s, timeout_s=self.config.screen_timeout_s)

    # ─── acting ───────────────────────────────────────────────────────

    async def _perform(self, call: Call) -> None:
        limit = self.config.screen_timeout_s + call.wait_s + 64 * self.config.pace_ms / 1000
        try:
            async with waiting(f"the screen to take {call.action}", limit):
                if self.client.conn.writer.is_closing():  # the server went, and may be back
                    await reconnect(self.client)
                async with self._letting_go():
                    await self._send(call)
                await self._flush()
        except OSError as error:
            raise DeadScreen(
                f"the screen took no input for {call.action} ({type(error).__name__}: {error})"
            ) from error

    async def _send(self, call: Call) -> None:
        if call.chords and not self._focused:
            await self._focus()
        if call.at is not None:
            self._point(call.at)
        if call.action in CLICKS:
            self._focused = True
            await self._click(call.button, times=CLICKS[call.action])
        elif call.to is not None:
            await self._drag(call.to, call.button)
        elif call.action == "scroll":
            self._scroll(*call.scroll)
        elif call.wait_s:
            await asyncio.sleep(call.wait_s)
        await self._introduce(call.chords)
        for chord in call.chords:
            self._tap(self._as_held(chord))

    async def _click(self, button: int, *, times: int) -> None:
        for index in range(times):
            if index:
                await self._pause()
            self._press(button)
            self._press(0)

    async def _focus(self) -> None:
        """Give the keyboard to what is shown, and the page the time to notice."""
        self._point((self.display_width // 2, self.display_height // 2))
        await self._click(1, times=1)
        self._focused = True
        await self._pause()

    async def _drag(self, to: Point, button: int) -> None:
        (x, y), (to_x, to_y) = self._at, to
        steps = max(1, min(24, max(abs(to_x - x), abs(to_y - y)) // DRAG_STEP_PX))
        self._press(button)
        await self._pause()
        for i in range(1, steps + 1):
            self._point((x + (to_x - x) * i // steps, y + (to_y - y) * i // steps))
            await self._pause()
        self._press(0)

    def _scroll(self, right: int, down: int) -> None:
        self._wheel(down)
        if right:  # RFB has no horizontal wheel that all servers know; Shift + wheel they do
            self._key(SHIFT, down=True)
            self._wheel(right)
            self._key(SHIFT, down=False)

    def _wheel(self, clicks: int) -> None:
        for _ in range(abs(clicks)):
            self._press(WHEEL_DOWN if clicks > 0 else WHEEL_UP)
            self._press(0)

    async def _introduce(self, chords: tuple[Chord, ...]) -> None:
        """Tap each character that is new to a real screen once with Ctrl held, which types nothing.

        An X server lends such a character a spare key and tells its programs; a browser that gets
        the key first loses it: `Čecha` arrived as `echa` (jordansissel/xdotool#437). Of 10 texts
        8 and 6 lost a letter without this, of 11 none with it, at 30 ms as at 100.
        """
        new = {k: None for chord in chords for k in chord if _is_lent(k)}.keys() - self._lent
        if not new or not self.config.pace_ms:
            return
        for keysym in sorted(new):
            self._tap((CONTROL, keysym))
        self._lent |= new
        await self._flush()
        await asyncio.sleep(LEND_S)

    def _as_held(self, chord: Chord) -> Chord:
        """A capital with Shift, as a hand types it: for a capital alone an X server presses Caps
        Lock, which pages see and which may stay on (TigerVNC/tigervnc#156)."""
        capital = len(chord) == 1 and 0x41 <= chord[0] <= 0x5A
        return (SHIFT, *chord) if capital and self.config.pace_ms else chord

    def _tap(self, chord: Chord) -> None:
        for keysym in chord:
            self._key(keysym, down=True)
        for keysym in reversed(chord):
            self._key(keysym, down=False)

    @contextlib.asynccontextmanager
    async def _letting_go(self) -> AsyncIterator[None]:
        """Whatever happens inside, nothing stays down after it."""
        try:
            yield
        finally:
            for keysym in reversed(self._keys.copy()):
                self._key(keysym, down=False)
            if self._buttons:
                self._press(0)
            self._write()

    async def _pause(self) -> None:
        if self.config.pace_ms:
            await self._flush()
            await asyncio.sleep(self.config.pace_ms / 1000)

    async def _flush(self) -> None:
        self._write()
        await self.client.drain()

    def _write(self) -> None:
        """Everything of a call in one write: 20 keys are 40 events, and each write is a packet."""
        self.client.conn.writer.write(bytes(self._events))
        self._events.clear()

    # asyncvnc's keyboard raises KeyError after half of a text was sent, and its mouse has no split
    # press and release, so events are written as the protocol defines them.

    def _key(self, keysym: int, *, down: bool) -> None:
        if down:
            self._keys.append(keysym)
        else:
            self._keys.remove(keysym)
        self._events += struct.pack(">BBxxI", 4, down, keysym)

    def _point(self, at: Point) -> None:
        self._at = at
        self._events += struct.pack(">BBHH", 5, self._buttons, *at)

    def _press(self, buttons: int) -> None:
        self._buttons = buttons
        self._point(self._at)

    def _note(self, call: Call) -> str | None:
        self._borrowed |= {k for chord in call.chords for k in chord if k > UNICODE_KEYSYM}
        if call.action != "type" or len(self._borrowed) < SPARE_KEYCODES:
            return None
        return (
            f"Typed. {len(self._borrowed)} different non-Latin characters so far; an X server may "
            f"drop those after the first {SPARE_KEYCODES}, so check the text."
        )


def _is_lent(keysym: int) -> bool:
    """Whether a US keyboard has no key for it: Latin-1's upper half and all of Unicode."""
    return 0xA0 <= keysym <= 0xFF or keysym > UNICODE_KEYSYM


def encode_png(frame: np.ndarray, size: tuple[int, int]) -> bytes:
    """A frame (height, width, 3) as PNG of this size; level 1 is 1.7x as fast as the default.

    Members of a group start from one frame: small frames are encoded once each, and whoever cuts
    the PNG into patches later finds its pixels (see `vision.made_here`).
    """
    if frame.size > SMALL_FRAME:
        return png_bytes(_scaled(_image_of(frame), size))
    whole = _whole_buffer(frame)
    key = ((frame if whole is None else whole).tobytes(), frame.shape, size)
    png = _PNGS.get(key)
    if png is None:
        image = _scaled(_image_of(frame), size)
        png = png_bytes(image)
        made_here(png, image)
        _PNGS.put(key, png)
    return png


def _scaled(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The image in the policy's size, RGB."""
    if image.size != size:
        across, down = image.width / size[0], image.height / size[1]
        if across == down == int(across):
            image = image.reduce(int(across))
        else:  # LANCZOS takes twice as long, and letters are no easier to read
            image = image.resize(size, Image.Resampling.HAMMING)
    return image.convert("RGB")


def _image_of(frame: np.ndarray) -> Image.Image:
    """The frame as an image; a view of the client's own RGBX buffer is not copied."""
    height, width = frame.shape[:2]
    if (whole := _whole_buffer(frame)) is not None:
        return Image.frombuffer("RGBX", (width, height), whole, "raw", "RGBX", 0, 1)
    return Image.fromarray(frame)


def _whole_buffer(frame: np.ndarray) -> np.ndarray | None:
    """The RGBX buffer (height, width, 4) that a frame is a view of, where it is one."""
    whole = frame.base
    if whole is None or whole.shape != (*frame.shape[:2], 4) or whole.strides != frame.strides:
        return None
    return whole
