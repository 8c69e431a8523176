"""The handshake of RFB: version, then security None or VNC authentication.

Invariant: with a password, nobody passes without answering a fresh random challenge; the password
itself never travels, is never logged and is read from a file only.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import struct
from asyncio import StreamReader, StreamWriter
from pathlib import Path

from cua_lab.desktop.near_streams import NearWriter
from cua_lab.desktop.rfb_messages import ProtocolError
from cua_lab.errors import LabError

LOGGER = logging.getLogger(__name__)
VERSION = b"RFB 003.008\n"
NONE, VNC = 1, 2
KEY_BYTES = 8
"""VNC authentication knows passwords of eight bytes; the rest of a longer one is ignored."""


def read_password(path: str | os.PathLike[str]) -> bytes:
    """The first line of a password file, as VNC uses it."""
    try:
        lines = Path(path).read_text(encoding="latin-1").splitlines()
    except OSError as error:
        raise LabError(
            f"cannot read the VNC password file {os.fspath(path)!r}: {error.strerror}; "
            "write the password into it as its first line"
        ) from error
    if not lines or not lines[0]:
        raise LabError(f"the VNC password file {os.fspath(path)!r} has an empty first line")
    password = lines[0].encode("latin-1")
    if len(password) > KEY_BYTES:
        LOGGER.warning("VNC authentication uses only the first %d bytes of a password", KEY_BYTES)
    return password[:KEY_BYTES]


def encrypt(challenge: bytes, password: bytes) -> bytes:
    """DES of the challenge under the password, each byte's bits reversed, as VNC does."""
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
    from cryptography.hazmat.primitives.ciphers import Cipher, modes

    padded = password[:KEY_BYTES].ljust(KEY_BYTES, b"\0")
    key = bytes(int(f"{byte:08b}"[::-1], 2) for byte in padded)
    # Single DES is gone from cryptography; three equal keys make the same cipher.
    encryptor = Cipher(TripleDES(key * 3), modes.ECB()).encryptor()
    return encryptor.update(challenge) + encryptor.finalize()


async def handshake(
    reader: StreamReader, writer: StreamWriter | NearWriter, password: bytes | None
) -> None:
    """Up to and with ClientInit; raises `ProtocolError` for a peer that does not pass."""
    writer.write(VERSION)
    minor = await _minor_version(reader, writer)
    security = NONE if password is None else VNC
    if minor == 3:
        writer.write(struct.pack(">I", security))  # 3.3: the server decides
    else:
        writer.write(bytes([1, security]))
        chosen = (await reader.readexactly(1))[0]
        if chosen != security:
            _refuse(writer, minor, f"security type {chosen} was not offered")
    if password is not None:
        await _challenge(reader, writer, minor, password)
    if password is not None or minor == 8:
        writer.write(struct.pack(">I", 0))
    await reader.readexactly(1)  # ClientInit: every connection is shared


async def _minor_version(reader: StreamReader, writer: StreamWriter | NearWriter) -> int:
    answer = await reader.readexactly(len(VERSION))
    match = re.fullmatch(rb"RFB (\d{3})\.(\d{3})\n", answer)
    if match is None or int(match[1]) != 3:
        reason = f"version {answer!r} is not spoken here; expected {VERSION!r}"
        writer.write(b"\0" + _text(reason))  # no security types, and why
        raise ProtocolError(reason)
    minor = int(match[2])
    return 8 if minor >= 8 else 7 if minor == 7 else 3


async def _challenge(
    reader: StreamReader, writer: StreamWriter | NearWriter, minor: int, password: bytes
) -> None:
    challenge = os.urandom(16)
    writer.write(challenge)
    answer = await reader.readexactly(16)
    if not hmac.compare_digest(answer, encrypt(challenge, password)):
        _refuse(writer, minor, "wrong password")


def _refuse(writer: StreamWriter | NearWriter, minor: int, reason: str) -> None:
    writer.write(struct.pack(">I", 1) + (_text(reason) if minor == 8 else b""))
    raise ProtocolError(reason)


def _text(text: str) -> bytes:
    return struct.pack(">I", len(text)) + text.encode("ascii", "replace")
