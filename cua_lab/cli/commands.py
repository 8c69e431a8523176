"""Importing this module registers every command group on the app."""

from cua_lab.cli import (  # noqa: F401
    data,
    data_check,
    desktop,
    doctor,
)
