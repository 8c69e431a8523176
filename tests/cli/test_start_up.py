"""The command line answers at once: what a command needs is loaded by the command."""

import subprocess
import sys

SLOW = ("torch", "transformers", "hud", "numpy", "yaml", "asyncio", "jinja2", "httpx", "PIL")


def loaded_by(code: str) -> str:
    code = f"import sys; {code}; print([m for m in {SLOW} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_help_loads_nothing_slow() -> None:
    """0.27 s of CPU time with these left out, 0.53 with YAML, asyncio and urllib."""
    assert loaded_by("from cua_lab.cli import commands") == "[]"


def test_the_package_itself_loads_nothing() -> None:
    assert loaded_by("import cua_lab") == "[]"
