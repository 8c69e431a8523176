"""Importing this module registers every command group on the app."""

from cua_lab.cli import bench, data, data_check, desktop, doctor, miles, report, run, serve  # noqa: F401
from cua_lab.cli import data_draw, sft  # noqa: F401
