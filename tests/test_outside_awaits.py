"""Each wait for something outside of this process has a limit, or somebody who ends it.

The package is read: an `await` on a socket, a pipe, a process or a screen stands inside of
`waiting(..., limit)` or `asyncio.timeout(...)`, is given `timeout_s`, or its function is listed
here with who limits it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OUTSIDE = {
    "open_connection", "readexactly", "readuntil", "readline", "connect", "communicate", "drain",
    "wait_closed", "connect_read_pipe",
}  # fmt: skip
LIMITS = {"waiting", "timeout"}
ROOMS = ("computer", "desktop", "envs", "play", "run", "safety", "serving", "hud_quirks.py")
FRAME = "its callers stand in waiting('a frame of the screen', ...) or in that of a connection"
HANDSHAKE = "RFBServer._serve: asyncio.timeout(HANDSHAKE_S)"
CLIENT = "a client may be silent for as long as it likes; closing the server hangs up on it"
X_KEYS = "read_keymap, restore_keymap: waiting(..., TIMEOUT_S)"
PARK = "Xvnc.park: waiting(..., PARK_S)"
PAGE = "the page's own request, which Page.navigate's limit ends; closing the proxy cancels it"
HELD = {
    "computer/framebuffer.py::_read_message": FRAME,
    "computer/framebuffer.py::_read_rest": FRAME,
    "computer/framebuffer.py::_number": FRAME,
    "computer/limits.py::readexactly": FRAME,
    "computer/limits.py::readline": FRAME,
    "computer/limits.py::skip": FRAME,
    "computer/limits.py::open_limited": "connect_to: waiting('the screen to answer', ...)",
    "computer/tool.py::_flush": "ComputerTool: waiting('the screen to take ...', limit)",
    "desktop/auth.py::handshake": HANDSHAKE,
    "desktop/auth.py::_minor_version": HANDSHAKE,
    "desktop/auth.py::_challenge": HANDSHAKE,
    "desktop/rfb_messages.py::read_message": CLIENT,
    "desktop/rfb_messages.py::_skip": CLIENT,
    "desktop/rfb.py::close": "its sessions hung up before",
    "desktop/cdp.py::_listen": "a reader of its own; each question has the limit of CDP.call",
    "desktop/keymap.py::_connect": X_KEYS,
    "desktop/keymap.py::_read": X_KEYS,
    "desktop/proxy.py::_forward": PAGE,
    "desktop/proxy.py::_copy": PAGE,
    "desktop/xvnc.py::_park": PARK,
    "desktop/xvnc.py::_handshake": PARK,
    "desktop/xvnc.py::_answered": PARK,
    "desktop/xvnc.py::_display": "a pipe is connected at once; its line is in waiting(..., BOOT_S)",
}


def awaited(path: Path) -> Iterator[tuple[str, str]]:
    """(function, call) of each await of something outside that no block around it limits."""

    def walk(node: ast.AST, function: str, limited: bool) -> Iterator[tuple[str, str]]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function, limited = node.name, False
        if isinstance(node, ast.AsyncWith):
            limited = limited or any(limits(item.context_expr) for item in node.items)
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Call) and not limited:
            name = called(node.value)
            if name in OUTSIDE and not any(k.arg == "timeout_s" for k in node.value.keywords):
                yield function, name
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function, limited)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), "", False)


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def limits(expression: ast.expr) -> bool:
    """`waiting(what, limit)` and `asyncio.timeout(limit)`; `waiting(what)` has no limit."""
    if not isinstance(expression, ast.Call) or called(expression) not in LIMITS:
        return False
    return called(expression) == "timeout" or len(expression.args) > 1


def found() -> dict[str, set[str]]:
    package, places = ROOT / "cua_lab", {}
    for room in ROOMS:
        paths = [package / room] if room.endswith(".py") else sorted((package / room).rglob("*.py"))
        for path in paths:
            for function, name in awaited(path):
                key = f"{path.relative_to(package).as_posix()}::{function}"
                places.setdefault(key, set()).add(name)
    return places


def test_each_wait_for_the_outside_is_limited_where_it_stands_or_by_whom_is_said() -> None:
    places = found()
    assert {key: names for key, names in places.items() if key not in HELD} == {}
    assert set(HELD) <= set(places), "it is limited where it stands now: take it off the list"


@pytest.mark.parametrize(
    ("code", "free"),
    [
        ("async def f(): await reader.readline()", 1),
        ("async def f():\n async with waiting('x', 3): await reader.readline()", 0),
        ("async def f():\n async with waiting('x'): await reader.readline()", 1),
        ("async def f():\n async with asyncio.timeout(3): await reader.readline()", 0),
        ("async def f():\n async with asyncio.timeout(3):\n  async def g(): await p.drain()", 1),
        ("async def f(): await connect(client, timeout_s=3)", 0),
    ],
)
def test_the_reader_of_the_code_sees_what_is_limited(tmp_path: Path, code: str, free: int) -> None:
    (tmp_path / "a.py").write_text(code)
    assert len(list(awaited(tmp_path / "a.py"))) == free
