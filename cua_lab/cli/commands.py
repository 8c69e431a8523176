"""Importing this module registers every command group on the app."""

from cua_lab.cli import bench_command as bench  # noqa: F401
from cua_lab.cli import data_check_command as data_check  # noqa: F401
from cua_lab.cli import data_command as data  # noqa: F401
from cua_lab.cli import data_draw_command as data_draw  # noqa: F401
from cua_lab.cli import desktop_command as desktop  # noqa: F401
from cua_lab.cli import doctor_command as doctor  # noqa: F401
from cua_lab.cli import evaluate_command as evaluate  # noqa: F401
from cua_lab.cli import miles_command as miles  # noqa: F401
from cua_lab.cli import report_command as report  # noqa: F401
from cua_lab.cli import run_command as run  # noqa: F401
from cua_lab.cli import serve_command as serve  # noqa: F401
from cua_lab.cli import sft_command as sft  # noqa: F401
