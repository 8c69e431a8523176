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
from cua_lab.recipes.trainer_settings import LoraSettings, TrainerSettings

__all__ = [
    "AgentSettings",
    "EngineSettings",
    "EvalSettings",
    "GrpoSettings",
    "LoraSettings",
    "PolicySettings",
    "Recipe",
    "RunSettings",
    "SftSettings",
    "Stage",
    "TaskSettings",
    "ToolSettings",
    "TrainerSettings",
    "dump_recipe",
    "load_recipe",
    "parse_recipe",
    "recipe_names",
]
