"""An app behind real HTTP on loopback, in a thread of its own, for as long as a block runs.

    with in_background(create_app(engine)) as (host, port): ...

For lessons and tests that need an address where a router would be; `cua-lab serve` is the server
for people. Invariant: when the block starts the app answers, when it ends the port is free.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

STOP_S = 10.0


@contextlib.contextmanager
def in_background(app: Any) -> Iterator[tuple[str, int]]:
    """Host and a free port."""
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(timeout=STOP_S)
