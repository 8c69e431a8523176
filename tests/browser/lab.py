"""A JupyterLab of its own for a browser test: loopback, temporary folders, nothing left behind.

`JupyterLab(folder)` serves a folder of notebooks; `open_notebook` and `run_all` drive it. Running
all cells from a button after "idle" failed in 7 of 13 runs; waiting inside the page for the
application, the session and the kernel, and then executing the command, passed in 10 of 10.
"""

import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Page

PR_SET_PDEATHSIG = 1
STARTUP_S = 60
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
}

RUN_ALL = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  const panel = app.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
  await app.commands.execute('notebook:run-all-cells');
}"""
SAVE = "() => window.jupyterapp.commands.execute('docmanager:save')"
THEME = "(name) => window.jupyterapp.commands.execute('apputils:change-theme', { theme: name })"
CELLS = "() => window.jupyterapp.shell.currentWidget.content.widgets.length"


class JupyterLab:
    """A server in a child process that dies with its parent."""

    def __init__(self, notebooks: Path, scratch: Path) -> None:
        self.notebooks, self.scratch = notebooks, scratch
        self.port = _free_port()
        self._write_settings()
        self.log = (scratch / "lab.log").open("w")
        self.process = subprocess.Popen(
            self._command(),
            env=self._environment(),
            stdout=self.log,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent,
            start_new_session=True,
        )

    def __enter__(self) -> "JupyterLab":
        try:
            self._wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and its kernels: they are one process group."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(10)
        self.log.close()

    def open_notebook(self, page: Page, name: str) -> None:
        """Open a notebook in a fresh workspace and wait until it is drawn."""
        page.goto(f"http://127.0.0.1:{self.port}/lab/tree/{name}?reset", timeout=60_000)
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)

    def run_all(self, page: Page) -> None:
        page.evaluate(RUN_ALL)

    def save(self, page: Page) -> None:
        page.evaluate(SAVE)

    def change_theme(self, page: Page, dark: bool) -> None:
        page.evaluate(THEME, "JupyterLab Dark" if dark else "JupyterLab Light")
        light = "false" if dark else "true"
        page.wait_for_selector(f'body[data-jp-theme-light="{light}"]', state="attached")

    def cell_count(self, page: Page) -> int:
        return page.evaluate(CELLS)

    def _command(self) -> list[str]:
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": str(self.port),
            "ServerApp.port_retries": "0",
            "ServerApp.open_browser": "False",
            "ServerApp.root_dir": str(self.notebooks),
            "ServerApp.allow_root": "True",
            "IdentityProvider.token": "",
            "KernelManager.shutdown_wait_time": "0.5",
            "LabApp.expose_app_in_browser": "True",
            "LabApp.extension_manager": "readonly",
            "LabApp.user_settings_dir": str(self.scratch / "settings"),
            "LabApp.workspaces_dir": str(self.scratch / "workspaces"),
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        return [sys.executable, "-m", "jupyterlab", "--no-browser", *flags]

    def _environment(self) -> dict[str, str]:
        own = {
            name: str(self.scratch / name.lower())
            for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
        }
        root = str(Path(__file__).parents[2])
        return {**os.environ, **own, "PYTHONPATH": root, "JUPYTER_NO_CONFIG": "1"}

    def _write_settings(self) -> None:
        for plugin, settings in SETTINGS.items():
            path = self.scratch / "settings" / f"{plugin}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(settings))

    def _wait(self) -> None:
        deadline = time.monotonic() + STARTUP_S
        address = f"http://127.0.0.1:{self.port}/api/status"
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                urllib.request.urlopen(address, timeout=2).close()
            except (OSError, http.client.HTTPException):
                time.sleep(0.1)
            else:
                return
        raise RuntimeError(f"JupyterLab did not start:\n{(self.scratch / 'lab.log').read_text()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _die_with_parent() -> None:
    """Linux ends this child when the test process dies, however it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
