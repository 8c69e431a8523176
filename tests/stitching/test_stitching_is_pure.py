"""Stitching knows ids, bytes and pixels, and nothing of HUD, HTTP or torch."""

import ast
from pathlib import Path

import pytest

from cua_lab.stitching import stitch

MODULES = (
    "align",
    "codec",
    "divergence",
    "episode_images",
    "growing",
    "ledger",
    "packed",
    "qwen_vocabulary",
    "rerender",
    "resync",
    "sample",
    "stitch",
    "stitched",
    "template_check",
    "turn",
)
FOREIGN = {"hud", "httpx", "mcp", "openai", "torch", "transformers", "asyncio", "fastapi"}


@pytest.mark.parametrize("name", MODULES)
def test_no_import_of_a_stitching_module_leads_out_of_the_room(name: str) -> None:
    """Imports inside functions counted too; of our own only the room, `errors` and `pictures`."""
    tree = ast.parse(Path(stitch.__file__).with_name(f"{name}.py").read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    assert not {module for module in found if module.split(".")[0] in FOREIGN}
    own = {module for module in found if module.startswith("cua_lab")}
    room = Path(stitch.__file__).parent
    inside = {f"cua_lab.{room.name}.{other}" for other in MODULES}
    assert own <= inside | {"cua_lab.errors", "cua_lab.pictures"}
