"""New weights for a server that goes on running, each engine by its own sequence.

    sglang, embedded   /update_weights_from_disk -> /flush_cache (only where it says it did not)
    vLLM               /pause -> /collective_rpc reload_weights -> /reset_prefix_cache
                       -> /reset_encoder_cache -> /update_weight_version -> /resume

A vLLM whose reload failed is left with tensors that hold nothing: resumed as it is, it dies of the
next request, and left paused it never answers again. So the folder is read before anything is
paused, and after a failure the old folder is loaded again before the server is resumed.

Invariant: when `update_weights` returns, the server answers with the new weights and has nothing
cached from the old ones; otherwise it raises and says which step failed and what the server serves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import httpx

from cua_lab.errors import LabError
from cua_lab.policy.weight_files import check_files, check_names
from cua_lab.serving.loopback import is_loopback

NOT_FLUSHED = "cache was not flushed"
"""sglang's 400 for weights that ARE new beside a cache that is not."""
RESUMES = 5
"""Tries: a paused server lets every later request hang for ever."""
PAUSE_S = 0.2


def weights_client(url: str, *, timeout_s: float = 600.0) -> httpx.Client:
    """A client for `update_weights`; `url` ends before `/v1`. No proxy stands between."""
    trusted = not is_loopback(url)
    return httpx.Client(base_url=url, timeout=timeout_s, trust_env=trusted)


def update_weights(
    client: httpx.Client,
    dialect: Literal["sglang", "vllm"],
    folder: Path,
    version: str,
    *,
    previous: Path | None = None,
    timeout_s: float = 600.0,
) -> None:
    """Make the server behind `client` (its `base_url` ends before `/v1`) serve a checkpoint.

    `folder` must be readable for the server; on this machine it is read first, and one that is not
    whole or does not have the served network's tensors is refused with nothing asked of the server.
    `previous` is what the server serves now, for vLLM to go back to (default: what it was started
    with). vLLM has these paths only when it was started with `VLLM_SERVER_DEV_MODE=1`, as
    `cua-lab serve` does.
    """
    folder = folder.resolve()  # a relative path would be looked up where the server was started
    if is_loopback(client.base_url):
        _check_folder(client, folder, previous)
    try:
        if dialect == "vllm":
            _update_vllm(client, str(folder), version, timeout_s, previous)
        else:
            _update_sglang(client, str(folder), version, timeout_s)
    except httpx.TransportError as error:
        raise LabError(
            f"{client.base_url} broke off while its weights were updated ({_words(error)}); see"
            " whether it still runs"
        ) from error


def _check_folder(client: httpx.Client, folder: Path, previous: Path | None) -> None:
    """Whole files with the names and shapes of what is served, where that can be seen."""
    try:
        check_files(folder)
        served = previous or _served_folder(client)
        if served is not None and served.is_dir():
            check_names(served, folder)
    except LabError as error:
        raise LabError(f"the server keeps its old weights: {error}") from error


def _served_folder(client: httpx.Client) -> Path | None:
    """What vLLM was started with; other engines say a name, or nothing that is a folder."""
    try:
        root = client.get("/v1/models").json()["data"][0]["root"]
    except (httpx.HTTPError, ValueError, LookupError, TypeError):
        return None
    return Path(root) if isinstance(root, str) and Path(root).is_absolute() else None


def _update_sglang(client: httpx.Client, folder: str, version: str, timeout_s: float) -> None:
    body = {"model_path": folder, "weight_version": version, "flush_cache": True}
    answer = client.post("/update_weights_from_disk", json=body, timeout=timeout_s)
    if answer.status_code == 200 and _success(answer) is not False:
        return
    if NOT_FLUSHED not in answer.text:
        raise LabError(f"the server keeps its old weights: {answer.text[:300]}")
    _flush(client, timeout_s)


def _success(answer: httpx.Response) -> Any:
    try:
        return answer.json().get("success")
    except (ValueError, AttributeError):
        return None


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


def _update_vllm(
    client: httpx.Client, folder: str, version: str, timeout_s: float, previous: Path | None
) -> None:
    _vllm(client, "/pause", timeout_s, params={"mode": "wait"})
    try:
        _reload(client, folder, timeout_s)
        _vllm(client, "/update_weight_version", timeout_s, json={"new_version": version})
    except (LabError, httpx.TransportError) as error:
        words = str(error) if isinstance(error, LabError) else f"it broke off ({_words(error)})"
        kept = _go_back(client, previous, timeout_s)
        unheard = "" if _resume(client, timeout_s) else "; it could not be resumed either"
        raise LabError(f"{words}; {kept}{unheard}") from error
    if not _resume(client, timeout_s):
        raise LabError(
            "vllm has the new weights and stays paused: /resume failed; every request to it hangs,"
            " so start it anew"
        )


def _reload(client: httpx.Client, folder: str, timeout_s: float) -> None:
    reload = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
    _vllm(client, "/collective_rpc", timeout_s, json=reload)
    _vllm(client, "/reset_prefix_cache", timeout_s)  # it is not reset by itself
    _vllm(client, "/reset_encoder_cache", timeout_s)  # nor are the features of images


def _go_back(client: httpx.Client, previous: Path | None, timeout_s: float) -> str:
    """What a server whose reload failed serves now, in words: the old weights where they load."""
    old = previous.resolve() if previous is not None else _served_folder(client)
    gone = "its weights are gone: it dies of the next request, so start it anew"
    if old is None:
        return gone
    try:
        _reload(client, str(old), timeout_s)
    except (LabError, httpx.TransportError):
        return gone
    return f"it serves {old} again"


def _resume(client: httpx.Client, timeout_s: float) -> bool:
    """Whether the server goes on; tried again, since the failure may have cut a connection."""
    for _ in range(RESUMES):
        try:
            _vllm(client, "/resume", timeout_s)
        except (LabError, httpx.TransportError):
            time.sleep(PAUSE_S)
        else:
            return True
    return False


def _vllm(
    client: httpx.Client,
    path: str,
    timeout_s: float,
    *,
    json: Mapping[str, Any] | None = None,
    params: Mapping[str, str] | None = None,
) -> None:
    """One step, on a connection of its own: vLLM closes some of them after an error."""
    answer = client.post(
        path, json=json, params=params, timeout=timeout_s, headers={"connection": "close"}
    )
    if answer.status_code != 200:
        hint = "; was it started with VLLM_SERVER_DEV_MODE=1?" if answer.status_code == 404 else ""
        raise LabError(f"vllm answered {answer.status_code} to {path}: {answer.text[:300]}{hint}")
    if path == "/reset_prefix_cache" and _success(answer) is False:
        raise LabError("vllm did not reset its prefix cache: the old weights' keys are still there")


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
