"""The command line in this process: what it prints, and with which status it ends."""

from dataclasses import dataclass

import pytest

from cua_lab.cli import main


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def one_line(self) -> str:
        """The one line that a mistake ends in; fails where it is anything else."""
        text = self.err.strip()
        assert self.status == 2, (self.status, self.out, text)
        assert "Traceback" not in text, text
        if text.startswith("Usage:"):  # typer's own: usage, hint, a box with one sentence
            return text
        *bars, line = text.replace("\r", "\n").splitlines()
        assert line.startswith("cua-lab: "), text
        assert all("B/s]" in bar for bar in bars), text
        return line


def cua_lab(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> Ended:
    """Run `cua-lab ARGUMENTS`; an exception that leaves it fails the test."""
    capsys.readouterr()
    monkeypatch.setattr("sys.argv", ["cua-lab", *arguments])
    status = 0
    try:
        main()
    except SystemExit as end:
        status = int(end.code or 0)
    printed = capsys.readouterr()
    return Ended(status, printed.out, printed.err)
