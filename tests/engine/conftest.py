"""The engine's tests share the serving room's tiny policies."""

from tests.serving.conftest import *  # noqa: F403  (fixtures)
from tests.serving.conftest import corpus, qwen25_checkpoint  # noqa: F401  (fixtures)
