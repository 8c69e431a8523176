"""The server of the env's own pages: files below its folders, and nothing else."""

import http.client
import socket
from pathlib import Path

import pytest

from cua_lab.desktop.page_server import PageServer


@pytest.fixture
def server(tmp_path: Path):
    (tmp_path / "pages/inner").mkdir(parents=True)
    (tmp_path / "pages/page.html").write_text("hello")
    (tmp_path / "secret.txt").write_text("secret")
    with PageServer({"lab": tmp_path / "pages"}) as served:
        yield served


def ask(server: PageServer, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, body=b"x" if method == "POST" else None)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_page_is_served(server: PageServer) -> None:
    assert ask(server, "/lab/page.html") == (200, b"hello")


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/lab/../secret.txt",
        "/lab/%2e%2e/secret.txt",
        "/lab/..%2fsecret.txt",
        "/lab//../../secret.txt",
        "/other/page.html",
        "//lab/page.html/../../secret.txt",
    ],
)
def test_nothing_outside_of_the_folders_is_read(server: PageServer, path: str) -> None:
    status, body = ask(server, path)
    assert status == 404
    assert b"secret" not in body.replace(b"secret.txt", b"")


@pytest.mark.parametrize("path", ["/", "/lab", "/lab/", "/lab/inner", "/lab/inner/"])
def test_no_folder_is_listed(server: PageServer, path: str) -> None:
    status, body = ask(server, path)
    assert status in (301, 404)
    assert b"page.html" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_only_get_is_answered(server: PageServer, method: str) -> None:
    assert ask(server, "/lab/page.html", method)[0] == 501


def test_it_listens_on_loopback_alone(server: PageServer) -> None:
    assert server._server.server_address[0] == "127.0.0.1"
    assert server._server.socket.family == socket.AF_INET
