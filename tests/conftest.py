"""One environment for tests and notebook kernels: threads, seeds, no stray keys, no network."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PYTHONHASHSEED"] = "0"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TQDM_DISABLE"] = "1"
os.environ.pop("HUD_API_KEY", None)
os.environ.pop("HUD_TELEMETRY_ENABLED", None)

from hypothesis import HealthCheck, settings

settings.register_profile(
    "normal",
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("nightly", parent=settings.get_profile("normal"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))
