"""`python -m cua_lab` is `cua-lab`."""

from __future__ import annotations

from cua_lab.cli import main

if __name__ == "__main__":
    main()
