"""Importing this module registers every command group on the app."""

from cua_lab.cli import (  # noqa: F401
    bench,
    data,
    data_check,
    data_draw,
    desktop,
    doctor,
    evaluate,
    miles,
    report,
    run,
    serve,
    sft,
)
