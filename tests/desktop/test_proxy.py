"""The proxy of a desktop's browser: allowed loopback ports and nothing else."""

import asyncio

import pytest

from cua_lab.desktop.proxy import PageProxy, address_of, direct, is_loopback_name


async def ask(proxy: PageProxy, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def echo(reader, writer) -> None:
    """A server that answers with the request's head, and ends."""
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + head)
    writer.close()


def played(requests: list[bytes], *, allowed: bool = True) -> tuple[list[bytes], list[str]]:
    """What a proxy answers; PORT in a request is a server's port."""

    async def main():
        async with asyncio.timeout(20):
            server = await asyncio.start_server(echo, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            proxy = await PageProxy().start()
            proxy.ports = {port} if allowed else set()
            answers = [await ask(proxy, r.replace(b"PORT", b"%d" % port)) for r in requests]
            await proxy.close()
            server.close()
        return answers, proxy.notes

    return asyncio.run(main())


def test_a_request_reaches_an_allowed_port_as_its_server_expects_it() -> None:
    (answer,), notes = played(
        [b"GET http://e1.localhost:PORT/a?b=1 HTTP/1.1\r\nHost: e1.localhost:1\r\n"
         b"Proxy-Connection: keep-alive\r\n\r\n"]
    )  # fmt: skip
    assert b"GET /a?b=1 HTTP/1.1\r\nHost: e1.localhost:1\r\nConnection: close\r\n\r\n" in answer
    assert notes == []


def test_a_tunnel_reaches_an_allowed_port() -> None:
    (answer,), _ = played(
        [b"CONNECT localhost:PORT HTTP/1.1\r\n\r\n" + b"GET /ws HTTP/1.1\r\n\r\n"]
    )
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"GET /ws HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    "request_",
    [
        b"GET http://127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
        b"POST http://localhost:PORT/ HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1:PORT HTTP/1.1\r\n\r\n",
        b"GET http://[::1]:PORT/ HTTP/1.1\r\n\r\n",
    ],
)
def test_a_port_that_is_not_allowed_hears_nothing(request_) -> None:
    answers, notes = played([request_], allowed=False)
    assert answers == [b""]
    assert "none of the page's own servers" in notes[0]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET http://example.org:PORT/ HTTP/1.1\r\n\r\n",
        b"CONNECT 10.0.0.1:PORT HTTP/1.1\r\n\r\n",
        b"GET http://localhost.example.org:PORT/ HTTP/1.1\r\n\r\n",
        b"GET http://127.0.0.1:99999/ HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_no_other_host_is_reached_whatever_its_port(request_) -> None:
    assert played([request_])[0] == [b""]


def test_names_of_this_machine() -> None:
    assert all(map(is_loopback_name, ("127.0.0.1", "localhost", "e7.localhost")))
    assert not any(map(is_loopback_name, ("", "example.org", "notlocalhost", "127.0.0.2", "::1")))
    assert address_of("http://e1.localhost/x") == ("e1.localhost", 80)
    assert address_of("data:text/html,x")[1] is None
    assert direct(b"GET http://a.localhost HTTP/1.1\r\n\r\n").startswith(b"GET / HTTP/1.1\r\n")
