"""New weights for a server that goes on running, each engine by its own sequence.

    sglang, embedded   /update_weights_from_disk -> /flush_cache (only where it says it did not)
    vLLM               /pause -> /collective_rpc reload_weights -> /reset_prefix_cache
                       -> /reset_encoder_cache -> /update_weight_version -> /resume

Invariant: when `update_weights` returns, the server answers with the new weights and has nothing
cached from the old ones; otherwise it raises and says which step failed.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import httpx

from cua_lab.errors import LabError

NOT_FLUSHED = "cache was not flushed"
"""sglang's 400 for weights that ARE new beside a cache that is not."""


def update_weights(
    client: httpx.Client,
    dialect: Literal["sglang", "vllm"],
    folder: Path,
    version: str,
    *,
    timeout_s: float = 600.0,
) -> None:
    """Make the server behind `client` (its `base_url` ends before `/v1`) serve a checkpoint.

    `folder` must be readable for the server. vLLM has these paths only when it was started with
    `VLLM_SERVER_DEV_MODE=1`, as `cua-lab serve` does.
    """
    update = _update_vllm if dialect == "vllm" else _update_sglang
    update(client, str(folder), version, timeout_s)


def _update_sglang(client: httpx.Client, folder: str, version: str, timeout_s: float) -> None:
    body = {"model_path": folder, "weight_version": version, "flush_cache": True}
    answer = client.post("/update_weights_from_disk", json=body, timeout=timeout_s)
    if answer.status_code == 200:
        return
    if NOT_FLUSHED not in answer.text:
        raise LabError(f"the server keeps its old weights: {answer.text[:300]}")
    _flush(client, timeout_s)


def _flush(client: httpx.Client, timeout_s: float) -> None:
    """Until it is done: sglang refuses while requests run."""
    deadline = time.monotonic() + timeout_s
    while client.post("/flush_cache").status_code != 200:
        if time.monotonic() > deadline:
            raise LabError(
                f"the weights are new, but the cache of the old ones could not be flushed within"
                f" {timeout_s:.0f} s: requests still run; wait for them before updating"
            )
        time.sleep(0.05)


def _update_vllm(client: httpx.Client, folder: str, version: str, timeout_s: float) -> None:
    _vllm(client, "/pause", timeout_s, params={"mode": "wait"})
    try:
        reload = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        _vllm(client, "/collective_rpc", timeout_s, json=reload)
        _vllm(client, "/reset_prefix_cache", timeout_s)  # it is not reset by itself
        _vllm(client, "/reset_encoder_cache", timeout_s)  # nor are the features of images
        _vllm(client, "/update_weight_version", timeout_s, json={"new_version": version})
    finally:
        _vllm(client, "/resume", timeout_s)


def _vllm(
    client: httpx.Client,
    path: str,
    timeout_s: float,
    *,
    json: Mapping[str, Any] | None = None,
    params: Mapping[str, str] | None = None,
) -> None:
    answer = client.post(path, json=json, params=params, timeout=timeout_s)
    if answer.status_code != 200:
        hint = "; was it started with VLLM_SERVER_DEV_MODE=1?" if answer.status_code == 404 else ""
        raise LabError(f"vllm answered {answer.status_code} to {path}: {answer.text[:300]}{hint}")
    if path == "/reset_prefix_cache" and answer.json().get("success") is False:
        raise LabError("vllm did not reset its prefix cache: the old weights' keys are still there")
