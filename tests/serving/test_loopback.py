"""No proxy between this machine and itself, and ports that are free."""

import socket

import pytest

from cua_lab.errors import LabError
from cua_lab.serving.loopback import free_port, is_loopback, open_transport, proxy_for


@pytest.fixture(autouse=True)
def proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """unsloth#6752, omnigent#1977: as on a company's laptop."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:30000/v1",
        "http://127.8.8.8",
        "http://localhost:1/v1",
        "http://[::1]:30000/v1",
        "http://0.0.0.0:30000",
        "http://a.localhost",
    ],
)
def test_this_machine_is_asked_directly(url: str) -> None:
    assert is_loopback(url)
    assert proxy_for(url) is None
    open_transport(url)


def test_a_server_elsewhere_is_asked_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://models.example.org/v1"
    assert not is_loopback(url)
    assert proxy_for(url) == "socks5://127.0.0.1:9"
    monkeypatch.setenv("no_proxy", "example.org")
    assert proxy_for(url) is None


def test_a_proxy_that_cannot_be_used_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """`all_proxy=socks5://...` without its package was an ImportError's traceback."""
    monkeypatch.setenv("http_proxy", "strange://127.0.0.1:9")
    with pytest.raises(LabError, match=r"proxy strange://.* cannot be used .*no_proxy"):
        open_transport("http://models.example.org/v1")


@pytest.mark.parametrize("port", [-1, 65536, 70000, 10**9])
def test_a_port_that_does_not_exist_is_named(port: int) -> None:
    """datasette#1226: an OverflowError's traceback."""
    with pytest.raises(LabError, match=f"port {port} does not exist"):
        free_port(port)


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(LabError, match="cannot listen on"),
    ):
        free_port(taken.getsockname()[1])
    assert free_port() > 0
