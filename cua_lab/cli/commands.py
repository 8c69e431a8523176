"""Importing this module registers every command group on the app."""

from cua_lab.cli import bench, data, data_check, desktop, doctor, miles, report, run, serve  # noqa: F401
