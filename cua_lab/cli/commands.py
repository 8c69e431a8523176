"""Importing this module registers every command group on the app."""

from __future__ import annotations

from cua_lab.cli import (  # noqa: F401
    audit_command,
    bench_command,
    data_check_command,
    data_command,
    data_draw_command,
    desktop_command,
    doctor_command,
    evaluate_command,
    gpu_check_command,
    miles_command,
    new_command,
    plan_command,
    report_command,
    run_command,
    serve_command,
    sft_command,
    show_command,
)
