"""The RFB server against a client written byte by byte, and its limits on bad ones."""

import asyncio
import struct

import numpy as np
import pytest
from PIL import Image

from cua_lab.desktop import keysyms
from cua_lab.desktop.apps import Game2048, Targets, Todo
from cua_lab.desktop.rfb import RFBServer
from cua_lab.errors import LabError

from .rawclient import RawClient, within_limit


def pixels(app) -> np.ndarray:
    return np.asarray(app.draw())


def test_the_screen_on_the_wire_is_the_screen_that_was_drawn():
    async def scenario():
        app = Game2048(seed=1)
        async with RFBServer(app, name="board") as server:
            client = await RawClient.connect(server.port)
            assert (client.width, client.height, client.name) == (128, 128, "board")
            assert (await client.screen() == pixels(app)).all()
            client.close()

    within_limit(scenario)


@pytest.mark.parametrize("version", [b"RFB 003.003\n", b"RFB 003.007\n", b"RFB 003.889\n"])
def test_older_and_odd_versions_of_the_protocol_get_their_own_handshake(version):
    """3.3 has no list of security types, 3.7 no result for None; Apple's clients say 3.889."""

    async def scenario():
        async with RFBServer(Game2048()) as server:
            if version == b"RFB 003.889\n":
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                await reader.readexactly(12)
                writer.write(version)
                assert await reader.readexactly(2) == b"\1\1"
                writer.write(b"\1")
                assert await reader.readexactly(4) == b"\0\0\0\0"
                writer.close()
            else:
                client = await RawClient.connect(server.port, version)
                await client.screen()
                client.close()

    within_limit(scenario)


def test_a_burst_of_keys_is_on_the_screen_that_is_asked_for_after_it():
    """No sleep: a connection's messages are handled in order."""

    async def scenario():
        app, twin = Game2048(seed=5), Game2048(seed=5)
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            for step in range(60):
                for keysym in (keysyms.LEFT, keysyms.DOWN, keysyms.RIGHT)[: step % 3 + 1]:
                    client.key(keysym)
                    twin.key(keysym, True)
                assert (await client.screen() == pixels(twin)).all(), f"step {step}"
            client.close()

    within_limit(scenario)


def test_an_incremental_update_sends_little_and_leaves_the_client_right():
    async def scenario():
        app = Game2048(seed=2)
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            screen = await client.screen()
            for direction in ("left", "up", "right", "down") * 8:
                if not app.push(direction):
                    continue  # changes nothing: there would be no answer
                client.ask(incremental=True)
                boxes = await client.patch(screen)
                assert (screen == pixels(app)).all()
                sent = sum(w * h for *_, w, h in boxes)
                assert 0 < sent < 128 * 128 * 0.7
            client.close()

    within_limit(scenario)


def test_dirty_rectangles_are_tight_and_apart():
    async def scenario():
        app = Patchwork()
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            screen = await client.screen()
            app.dot(3, 5)
            app.dot(90, 100)
            app.dot(91, 101)
            client.ask(incremental=True)
            boxes = await client.patch(screen)
            assert sorted(boxes) == [(3, 5, 1, 1), (90, 100, 2, 2)]
            assert (screen == pixels(app)).all()
            client.close()

    within_limit(scenario)


def test_an_incremental_request_waits_for_a_change_and_then_answers_once():
    async def scenario():
        app = Todo(seed=1)
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            screen = await client.screen()
            client.ask(incremental=True)
            assert await client.quiet()
            app.reset(2)
            server.changed()  # a reset from outside
            await client.patch(screen)
            assert (screen == pixels(app)).all()
            app.reset(3)
            server.changed()
            assert await client.quiet(), "one request is answered once"
            client.close()

    within_limit(scenario)


def test_an_incremental_request_before_any_full_one_sends_its_area_once():
    """The server does not believe that a client knows what it was never sent."""

    async def scenario():
        app = Patchwork()
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            screen = np.zeros((128, 128, 3), np.uint8)
            client.ask(True, (10, 10, 20, 20))
            assert await client.patch(screen) == [(10, 10, 20, 20)]
            client.ask(True, (10, 10, 20, 20))
            assert await client.quiet(), "this area is known now"
            app.dot(12, 12)  # also answers the waiting request
            server.changed()
            assert await client.patch(screen) == [(12, 12, 1, 1)]
            client.ask(True)
            await client.patch(screen)
            assert (screen == pixels(app)).all(), "the rest of the screen was still owed"
            client.close()

    within_limit(scenario)


def test_a_change_outside_the_requested_area_stays_owed():
    async def scenario():
        app = Patchwork()
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            screen = await client.screen()
            app.dot(100, 100)
            app.dot(1, 1)
            client.ask(True, (0, 0, 50, 50))
            assert await client.patch(screen) == [(1, 1, 1, 1)]
            client.ask(True)
            assert await client.patch(screen) == [(100, 100, 1, 1)]
            client.close()

    within_limit(scenario)


def test_a_partial_request_is_answered_with_its_part_and_one_outside_with_nothing():
    async def scenario():
        app = Game2048(seed=1)
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            screen = np.zeros((128, 128, 3), np.uint8)
            client.ask(False, (100, 90, 500, 500))  # clipped to the screen
            assert await client.patch(screen) == [(100, 90, 28, 38)]
            assert (screen[90:, 100:] == pixels(app)[90:, 100:]).all()
            client.ask(False, (500, 500, 10, 10))
            assert await client.update() == []
            client.close()

    within_limit(scenario)


def test_one_zlib_stream_lives_through_a_change_of_mind():
    async def scenario():
        app = Game2048(seed=1)
        async with RFBServer(app, zlib_level=6) as server:
            client = await RawClient.connect(server.port)
            for codes, expected in [((6, 0), 6), ((0, 6), 0), ((16, 7, 6), 6), ((16, 5), 0)]:
                client.key(keysyms.LEFT)
                client.set_encodings(*codes)
                client.ask(False)
                ((code, _, body),) = await client.update()
                assert code == expected
                assert (
                    np.frombuffer(body, np.uint8).reshape(128, 128, 4)[..., :3] == pixels(app)
                ).all()
            client.close()

    within_limit(scenario)


def test_several_clients_share_the_app_and_each_sees_what_the_others_do():
    async def scenario():
        app = Todo(seed=4)
        async with RFBServer(app) as server:
            clients = [await RawClient.connect(server.port) for _ in range(4)]
            screens = [await client.screen() for client in clients]
            for client in clients[1:]:
                client.ask(incremental=True)
            clients[0].key(ord("x"))
            for client, screen in zip(clients[1:], screens[1:], strict=True):
                await client.patch(screen)
                assert (screen == pixels(app)).all()
            assert app.state()["text"] == "x"
            for client in clients:
                client.close()

    within_limit(scenario)


def test_the_app_is_drawn_only_after_it_changed():
    async def scenario():
        app = Counting(seed=1)
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            for _ in range(10):
                await client.screen()
            assert app.painted == 1
            for _ in range(50):
                client.key(ord("a"))
            await client.screen()
            assert app.painted == 2, "fifty keys, one drawing: nobody looked in between"
            client.close()

    within_limit(scenario)


def test_what_a_lost_client_held_is_released():
    """Otherwise the next client meets a stuck Shift and a drag in progress."""

    async def scenario():
        app = Recording()
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            client.writer.write(struct.pack(">BBxxI", 4, 1, keysyms.SHIFT_L))
            client.point(5, 6, 1)
            await client.screen()
            client.writer.transport.abort()
            while server.clients:
                await asyncio.sleep(0.001)
            assert app.events == [
                ("key", keysyms.SHIFT_L, True),
                ("pointer", 5, 6, 1),
                ("key", keysyms.SHIFT_L, False),
                ("pointer", 5, 6, 0),
            ]

    within_limit(scenario)


def test_a_pointer_beyond_the_screen_is_at_its_edge():
    async def scenario():
        app = Recording()
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            client.point(65535, 128, 0)
            await client.screen()
            assert app.events == [("pointer", 127, 127, 0)]
            client.close()

    within_limit(scenario)


BAD = {
    "an unknown message type": b"\x63 and more",
    "a HTTP request": b"GET / HTTP/1.1\r\n\r\n",
    "cut text of a gigabyte": struct.pack(">BxxxI", 6, 1 << 30),
    "cut text of a negative size": struct.pack(">Bxxxi", 6, -1),
    "pixels of 13 bits": struct.pack(">B3xBBBBHHHBBB3x", 0, 13, 8, 0, 1, 7, 7, 3, 0, 3, 6),
    "channels that do not fit": struct.pack(">B3xBBBBHHHBBB3x", 0, 8, 8, 0, 1, 255, 7, 3, 4, 3, 6),
    "half a message": b"\x03\x00\x00",
}


@pytest.mark.parametrize("message", BAD.values(), ids=BAD.keys())
def test_a_client_that_breaks_the_protocol_loses_its_connection_and_nobody_else_does(message):
    async def scenario():
        app = Game2048(seed=1)
        async with RFBServer(app) as server:
            good, bad = [await RawClient.connect(server.port) for _ in range(2)]
            bad.writer.write(message)
            if message == BAD["half a message"]:
                bad.writer.write_eof()
            assert await bad.ended()
            assert (await good.screen() == pixels(app)).all()
            assert server.clients == 1
            good.close()

    within_limit(scenario)


@pytest.mark.parametrize(
    "version", [b"RFB 004.000\n", b"SSH-2.0-ssh_", b"RFB abc.def\n", b"\0" * 12]
)
def test_a_bad_version_is_refused_with_a_reason(version):
    async def scenario():
        async with RFBServer(Game2048()) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            await reader.readexactly(12)
            writer.write(version)
            answer = await reader.read()
            assert answer[0] == 0, "no security type"
            assert b"is not spoken here" in answer[5:]
            writer.close()
            client = await RawClient.connect(server.port)
            await client.screen()
            client.close()

    within_limit(scenario)


def test_cut_text_is_skipped_and_the_stream_stays_in_step():
    async def scenario():
        app = Todo(seed=1)
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            client.writer.write(struct.pack(">BxxxI", 6, 1000) + b"\x03" * 1000)
            client.key(ord("k"))
            assert (await client.screen() == pixels(app)).all()
            assert app.state()["text"] == "k"
            client.close()

    within_limit(scenario)


def test_a_clipboard_of_megabytes_is_skipped():
    """More than 256 KiB ended the connection (TigerVNC/tigervnc#1482)."""

    async def scenario():
        app = Todo(seed=1)
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            client.writer.write(struct.pack(">BxxxI", 6, 3 * 2**20) + b"\x03" * (3 * 2**20))
            client.key(ord("k"))
            assert (await client.screen() == pixels(app)).all()
            assert app.state()["text"] == "k"
            client.close()

    within_limit(scenario)


@pytest.mark.parametrize("dot", [(3, 5), (90, 100)])
def test_of_two_incremental_requests_neither_is_forgotten(dot):
    """A viewer asks for one tile after the other; only the last was kept."""

    async def scenario():
        app = Patchwork()
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            screen = await client.screen()
            client.ask(incremental=True, box=(0, 0, 20, 20))
            client.ask(incremental=True, box=(80, 80, 40, 40))
            assert await client.quiet()
            app.dot(50, 50)  # in neither
            server.changed()
            assert await client.quiet()
            app.dot(*dot)
            server.changed()
            assert await client.patch(screen) == [(*dot, 1, 1)]
            client.close()

    within_limit(scenario)


def test_a_client_that_never_reads_is_cut_off_and_the_others_go_on():
    async def scenario():
        app = Todo(640, 600, seed=1)
        async with RFBServer(app, stall_s=0.2) as server:
            deaf = await RawClient.connect(server.port)
            deaf.reader._transport.pause_reading()
            for _ in range(60):  # 90 MB of screens that nobody takes
                deaf.ask(incremental=False)
            good = await RawClient.connect(server.port)
            while server.clients > 1:
                assert (await good.screen() == pixels(app)).all()
                await asyncio.sleep(0.01)
            assert (await good.screen() == pixels(app)).all()
            deaf.writer.transport.abort()
            good.close()

    within_limit(scenario)


def test_abrupt_disconnects_in_every_phase_leave_the_server_up():
    async def scenario():
        async with RFBServer(Game2048(seed=1)) as server:
            for sent in (b"", b"RFB", b"RFB 003.008\n", b"RFB 003.008\n\1", b"RFB 003.008\n\1\1\3"):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(sent)
                await asyncio.sleep(0.005)
                writer.transport.abort()
            client = await RawClient.connect(server.port)
            await client.screen()
            client.close()
            while server.clients:
                await asyncio.sleep(0.001)

    within_limit(scenario)


def test_closing_hangs_up_on_everybody_and_frees_the_port():
    async def scenario():
        app = Game2048(seed=1)
        server = await RFBServer(app).start()
        port = server.port
        client = await RawClient.connect(port)
        await client.screen()
        await server.close()
        assert await client.ended()
        async with RFBServer(app, port=port) as again:
            assert again.port == port
        client.close()

    within_limit(scenario)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "example.org", ""])
def test_only_loopback_is_served(host):
    """A desktop on an open port would be driven by anybody."""
    with pytest.raises(LabError, match="loopback only"):
        RFBServer(Game2048(), host=host)


def test_a_taken_port_is_an_error_that_says_what_to_do():
    async def scenario():
        async with RFBServer(Game2048()) as first:
            with pytest.raises(LabError, match="choose another port"):
                await RFBServer(Game2048(), port=first.port).start()

    within_limit(scenario)


def test_an_app_that_fails_ends_the_connection_and_says_so_in_the_log(caplog):
    async def scenario():
        app = Failing()
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            client.key(ord("a"))
            assert await client.ended()

    within_limit(scenario)
    assert "the app failed" in caplog.text
    assert "no such tile" in caplog.text


def test_a_flood_of_messages_does_not_starve_the_other_clients():
    async def scenario():
        app = Targets(seed=1)
        async with RFBServer(app) as server:
            flood, good = [await RawClient.connect(server.port) for _ in range(2)]
            flood.writer.write(struct.pack(">BBHH", 5, 0, 1, 1) * 100_000)
            assert (await good.screen() == pixels(app)).all()
            flood.close()
            good.close()

    within_limit(scenario)


class Patchwork:
    """A grey screen on which the test changes single pixels."""

    size = (128, 128)

    def __init__(self):
        self.image = Image.new("RGB", self.size, (90, 90, 90))

    def dot(self, x, y):
        self.image = self.image.copy()
        self.image.putpixel((x, y), (250, 0, 0))

    def draw(self):
        return self.image

    def reset(self, seed): ...
    def key(self, keysym, down): ...
    def pointer(self, x, y, buttons): ...
    def state(self):
        return {}


class Recording(Patchwork):
    """Writes down what happens to it."""

    def __init__(self):
        super().__init__()
        self.events = []

    def key(self, keysym, down):
        self.events.append(("key", keysym, down))

    def pointer(self, x, y, buttons):
        self.events.append(("pointer", x, y, buttons))


class Failing(Patchwork):
    def key(self, keysym, down):
        raise RuntimeError("no such tile")


class Counting(Todo):
    painted = 0

    def _paint(self):
        self.painted += 1
        return super()._paint()
