"""VNC authentication: right, wrong and missing passwords, on the wire and with HUD's client."""

import asyncio

import pytest

from cua_lab.desktop.apps import Game2048
from cua_lab.desktop.auth import encrypt, read_password
from cua_lab.desktop.rfb import RFBServer
from cua_lab.errors import LabError

from .rawclient import within_limit


@pytest.fixture
def password_file(tmp_path):
    path = tmp_path / "password"
    path.write_text("s3cret!\n")
    return path


async def answer(server, security: int, secret: bytes | None):
    """Go through the handshake; what the server says after it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await reader.readexactly(12)
    writer.write(b"RFB 003.008\n")
    offered = await reader.readexactly(2)
    writer.write(bytes([security]))
    if security == 2:
        challenge = await reader.readexactly(16)
        writer.write(encrypt(challenge, secret) if secret else b"\0" * 16)
    result = await reader.readexactly(4)
    reason = b"" if result == b"\0\0\0\0" else await reader.read()
    writer.close()
    return offered, result, reason


def test_des_is_the_one_of_vnc():
    """A pair from OpenSSL's single DES, which three equal keys have to match."""
    assert encrypt(bytes(range(16)), b"password").hex() == "b866924125c8eebb9debc1db61c538e2"


def test_the_right_password_passes_and_the_wrong_one_gets_a_reason(password_file):
    async def scenario():
        async with RFBServer(Game2048(), password_file=password_file) as server:
            assert await answer(server, 2, b"s3cret!") == (b"\1\2", b"\0\0\0\0", b"")
            for secret in (b"wrong", None):
                _, result, reason = await answer(server, 2, secret)
                assert (result, reason[4:]) == (b"\0\0\0\1", b"wrong password")

    within_limit(scenario)


def test_nobody_gets_around_the_password(password_file):
    """Asking for security None is refused when it was not offered."""

    async def scenario():
        async with RFBServer(Game2048(), password_file=password_file) as server:
            _, result, reason = await answer(server, 1, None)
            assert result == b"\0\0\0\1"
            assert b"not offered" in reason

    within_limit(scenario)


def test_every_challenge_is_fresh(password_file):
    async def scenario():
        async with RFBServer(Game2048(), password_file=password_file) as server:
            seen = set()
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"RFB 003.008\n\2")
                seen.add((await reader.readexactly(12 + 2 + 16))[-16:])
                writer.close()
            assert len(seen) == 3

    within_limit(scenario)


def test_only_the_first_line_counts_and_long_passwords_are_cut_as_vnc_does(tmp_path):
    path = tmp_path / "password"
    path.write_text("correct horse\nbattery staple\n")
    assert read_password(path) == b"correct "


@pytest.mark.parametrize("text", [None, "", "\n", "\nsecond line"])
def test_a_missing_or_empty_password_file_is_refused_at_once(tmp_path, text):
    """Falling back to no password would open the desktop."""
    path = tmp_path / "password"
    if text is not None:
        path.write_text(text)
    with pytest.raises(LabError, match="password file"):
        RFBServer(Game2048(), password_file=path)


def test_the_password_is_never_logged(password_file, caplog):
    async def scenario():
        async with RFBServer(Game2048(), password_file=password_file) as server:
            await answer(server, 2, b"wrong")

    with caplog.at_level("DEBUG"):
        within_limit(scenario)
    assert "s3cret" not in caplog.text
    assert "wrong password" in caplog.text
