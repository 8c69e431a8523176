"""Folders of pages, served on loopback for the browsers of this machine.

Invariant: only files below the given folders can be read, only GET is answered, and the server
listens on 127.0.0.1.
"""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, Self


class PageServer:
    """Serves each folder under its name: `{"lab": folder}` at `/lab/...`."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        handler = functools.partial(_Handler, folders=dict(folders))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="pages", daemon=True).start()

    def url(self, path: str) -> str:
        """The address of a page such as `lab/2048.html`."""
        return f"http://127.0.0.1:{self.port}/{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Handler(http.server.SimpleHTTPRequestHandler):
    # Pages that do not say so are UTF-8 all the same; Chromium would guess Latin-1.
    extensions_map: ClassVar[dict[str, str]] = {  # type: ignore[misc]
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
    }
    # HTTP/1.0, so that no connection outlives its file: a browser would keep six for the host of
    # every episode, and a thread here with each.

    def __init__(self, *args: Any, folders: dict[str, Path], **kwargs: Any) -> None:
        self._folders = folders
        super().__init__(*args, **kwargs)

    def do_GET(self) -> None:
        if self.path == "/favicon.ico":  # asked for by every browser, and an error on its console
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()
        else:
            super().do_GET()

    def translate_path(self, path: str) -> str:
        name, _, rest = path.lstrip("/").partition("/")
        folder = self._folders.get(name)
        self.directory = str(folder or "/nonexistent")
        return super().translate_path(f"/{rest}" if folder else "/nothing")

    def list_directory(self, path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: Any) -> None:
        """The browser's own complaints are heard through CDP."""
