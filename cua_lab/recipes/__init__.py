"""Recipes: numbers, each annotated with its trade-off; mechanism stays in code."""

from __future__ import annotations

from cua_lab.recipes.loader import dump_recipe, load_recipe, parse_recipe, recipe_names
from cua_lab.recipes.settings import (
    AgentSettings,
    EngineSettings,
    EvalSettings,
    GrpoSettings,
    PolicySettings,
    Recipe,
    RunSettings,
    SftSettings,
    Stage,
    TaskSettings,
    ToolSettings,
)

__all__ = [
    "AgentSettings",
    "EngineSettings",
    "EvalSettings",
    "GrpoSettings",
    "PolicySettings",
    "Recipe",
    "RunSettings",
    "SftSettings",
    "Stage",
    "TaskSettings",
    "ToolSettings",
    "dump_recipe",
    "load_recipe",
    "parse_recipe",
    "recipe_names",
]
