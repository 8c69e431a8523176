"""The public tasks of the browser env: one or more concrete rows per template, by slug."""

from __future__ import annotations

from cua_lab.envs.browser.env import env

tasks = [
    env.task_row("2048-score", "2048-score", seed=0),
    env.task_row("2048-reach-64", "2048-reach-tile", tile=64, seed=0),
    env.task_row("2048-near-win-64", "2048-near-win", tile=64, merges=2, seed=0),
    env.task_row("2048-near-win-128", "2048-near-win", tile=128, merges=3, turns=3, seed=0),
    env.task_row("2048-best-merge", "2048-best-merge", keys=1, seed=0),
    env.task_row("todo-complete", "todo-complete", items=3, complete=1, seed=0),
    env.task_row("todo-create", "todo-create", items=2, seed=0),
]
