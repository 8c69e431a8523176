"""Which process a desktop lives in.

HUD reaches an env's screen through a tunnel over the control channel: two more sockets, 3 ms to
connect and two more copies of every frame. Where the desktop is in the same process none of that is
needed. An address alone does not tell (127.0.0.1 may be a container's), so an env publishes this
token beside its screen's address, and a client with the same token may dial it directly.
"""

from __future__ import annotations

import secrets

PROCESS_ID = secrets.token_hex(8)
"""New in each process that imports this."""
PARAM = "process"
"""The name under which a capability carries it."""
