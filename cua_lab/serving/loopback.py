"""HTTP to this machine: no proxy stands between, and a port belongs to one server.

`http_proxy` and `all_proxy` in the environment are meant for the network outside. Invariant: nobody
here asks a proxy for an address of this machine; a proxy that cannot be used is one clear error.
"""

from __future__ import annotations

import ipaddress
import socket
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cua_lab.errors import LabError

if TYPE_CHECKING:
    import httpx


def is_loopback(url: str | httpx.URL) -> bool:
    """Whether a URL is an address of this machine."""
    host = urlsplit(str(url)).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def proxy_for(url: str) -> str | None:
    """The proxy that the environment wants for a URL; never one for this machine."""
    parsed = urlsplit(url)
    if is_loopback(url) or urllib.request.proxy_bypass(parsed.hostname or ""):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parsed.scheme) or proxies.get("all")


def open_transport(url: str) -> httpx.AsyncHTTPTransport:
    """A transport to a server, through the environment's proxy where the server is elsewhere."""
    import httpx

    proxy = proxy_for(url)
    if proxy is None:
        return httpx.AsyncHTTPTransport()
    try:
        return httpx.AsyncHTTPTransport(proxy=proxy)
    except (ImportError, ValueError) as error:
        raise LabError(
            f"the environment's proxy {proxy} cannot be used ({error}); unset it, name the server"
            " in no_proxy, or for socks: pip install 'httpx[socks]'"
        ) from error


def check_port(port: int) -> None:
    """A port that can exist."""
    if not 0 <= port <= 65535:
        raise LabError(f"port {port} does not exist; give one from 1 to 65535, or 0 for a free one")


def claim(host: str, port: int) -> socket.socket:
    """A socket bound to the address, which nobody else can take while it is open."""
    check_port(port)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise LabError(
            f"cannot listen on {host}:{port} ({error.strerror or error}); choose another port, or"
            " --port 0 for a free one"
        ) from error
    return bound


def free_port(port: int = 0) -> int:
    """`port` where nobody listens on it, or a free one for 0."""
    with claim("127.0.0.1", port) as bound:
        return int(bound.getsockname()[1])
