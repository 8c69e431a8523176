"""One environment for tests and notebook kernels: threads, seeds, no stray keys, no network."""

import os

from hypothesis import HealthCheck, settings

from cua_lab.notebooks import set_environment

set_environment()
os.environ["CUA_LAB_LESSON_RECIPE"] = "smoke"

settings.register_profile(
    "normal",
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("nightly", parent=settings.get_profile("normal"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))
