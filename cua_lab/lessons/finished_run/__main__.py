"""`python -m cua_lab.lessons.finished_run pack FOLDER [--name NAME]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cua_lab.errors import LabError
from cua_lab.lessons.finished_run import FOLDER
from cua_lab.lessons.finished_run.pack import pack


def main() -> int:
    """Pack a run for the lessons; then their outputs are stored again."""
    parser = argparse.ArgumentParser(prog="python -m cua_lab.lessons.finished_run")
    parser.add_argument("action", choices=["pack"])
    parser.add_argument("folder", type=Path, help="a finished run, such as runs/laptop")
    parser.add_argument("--name", default="laptop", help="what the lessons call it")
    arguments = parser.parse_args()
    try:
        size = pack(arguments.folder, FOLDER / arguments.name)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"packed {arguments.folder} as {arguments.name}: {size / 1e6:.2f} MB")
    print("now: python -m cua_lab.lessons.notebooks store 06_grpo 10_think_then_act")
    return 0


if __name__ == "__main__":
    sys.exit(main())
