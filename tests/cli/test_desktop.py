"""`cua-lab desktop` as a user runs it."""

import re
import signal
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from cua_lab.cli import app, commands  # noqa: F401  (registers the commands)
from cua_lab.errors import LabError


def test_it_serves_until_ctrl_c_and_then_says_how_the_app_was_left():
    command = [sys.executable, "-u", "-c", "from cua_lab.cli import main; main()", "desktop"]
    options = ["targets", "--port", "0", "--level", "2", "--seed", "3"]
    with subprocess.Popen(command + options, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        port = int(re.search(r"rfb://127\.0\.0\.1:(\d+)", lines[1])[1])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            assert client.recv(12) == b"RFB 003.008\n"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert re.match(r"task: Click the \w+ button\.", lines[0])
    assert '"app": "targets"' in rest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["todo", "--level", "2"], "--level belongs to targets"),
        (["targets", "--near-win", "64"], "--near-win belongs to game2048"),
        (["targets", "--level", "9"], "levels 1, 2 and 3"),
        (["todo", "--host", "0.0.0.0"], "loopback only"),
        (["todo", "--password-file", "no-such-file"], "password file"),
        (["todo", "--width", "5"], "96 to 4096"),
    ],
)
def test_a_bad_option_is_one_clear_error(words, message):
    result = CliRunner().invoke(app, ["desktop", *words])
    assert isinstance(result.exception, LabError)
    assert message in str(result.exception)
