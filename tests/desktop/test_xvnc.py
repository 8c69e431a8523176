"""The port of a desktop stays its own."""

import socket
import sys

import pytest

from cua_lab.desktop.xvnc import hold

linux = pytest.mark.skipif(sys.platform != "linux", reason="two sockets share a port on Linux only")


@linux
def test_a_port_that_is_held_is_dealt_to_nobody_and_our_server_may_listen_on_it() -> None:
    """Between two boots on one port, some other process was dealt it (1 of 20 rounds)."""
    with hold(0) as held:
        port = held.getsockname()[1]
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        for _ in range(2):  # a desktop and the one that boots after it
            with (
                socket.create_server(("127.0.0.1", port)) as ours,
                socket.create_connection(("127.0.0.1", port)),
            ):
                ours.accept()[0].close()


def test_a_port_that_somebody_listens_on_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=rf"port {port} of 127\.0\.0\.1 is taken"):
            hold(port)
