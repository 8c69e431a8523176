"""`cua-lab run`: a user's mistakes are one clear line, and Ctrl-C says how to go on."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MAIN = [sys.executable, "-c", "from cua_lab.cli import main; main()"]


def cua_lab(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MAIN, *arguments], cwd=folder, capture_output=True, text=True, timeout=600
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "--recipe", "lapdog"], "laptop"),
        (["run", "--set", "stages.click.grpo.stepz=3"], "steps"),
        (["run", "--recipe", "smoke", "--set", "grpo.group_size=1"], "2"),
        (["run", "--recipe", "smoke", "--resume"], "nothing to resume"),
        (["run", "--recipe", "smoke", "--set", "stages.click.tasks.template=clicks"], "2048-score"),
    ],
    ids=["recipe", "key", "value", "resume", "template"],
)
def test_a_mistake_is_one_line_that_helps_and_trains_nothing(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    done = cua_lab(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("cua-lab: ")
    assert expected in done.stderr
    assert not list(tmp_path.glob("runs/*/metrics.jsonl"))


@pytest.mark.parametrize(
    ("sent", "status", "inherited"),
    [(signal.SIGINT, 130, signal.SIG_DFL), (signal.SIGTERM, 143, signal.SIG_IGN)],
)
def test_ctrl_c_stops_cleanly_keeps_what_is_done_and_says_how_to_go_on(
    tmp_path: Path, sent: signal.Signals, status: int, inherited: signal.Handlers
) -> None:
    """`kill` and schedulers send SIGTERM, also to a run that a script put into the background,
    which has Ctrl-C ignored: such a one went on to its end."""
    process = subprocess.Popen(
        [*MAIN, "run", "--recipe", "smoke", "--name", "mine"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, inherited),  # children inherit it
    )
    metrics = tmp_path / "runs/mine/metrics.jsonl"
    deadline = time.monotonic() + 300
    while not metrics.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(sent)
    out, err = process.communicate(timeout=300)
    assert process.returncode == status, err
    assert "Traceback" not in err
    assert "cua-lab run --name mine --resume" in out
    assert (tmp_path / "runs/mine/progress.json").exists()
