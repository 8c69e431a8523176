"""Importing this module registers every command group on the app."""

from cua_lab.cli import data, desktop, doctor, report, run  # noqa: F401
