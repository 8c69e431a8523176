"""New weights over the wire: all of the sequence or an error that says where it stopped."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import save_file

from cua_lab.errors import LabError
from cua_lab.serving import live_weights
from cua_lab.serving.live_weights import update_weights

Answer = Callable[[httpx.Request], httpx.Response]
UPDATED = "/update_weights_from_disk"


def client(answer: Answer, asked: list[str]) -> httpx.Client:
    """A client of a server that is one function; `asked` gets the paths."""

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return answer(request)

    return httpx.Client(transport=httpx.MockTransport(handle), base_url="http://engine")


def vllm(request: httpx.Request) -> httpx.Response:
    """As recorded with 0.32.0."""
    answers = {
        "/pause": {"status": "paused"},
        "/collective_rpc": {"results": [None]},
        "/reset_prefix_cache": {"success": True},
        "/resume": {"status": "resumed"},
    }
    return httpx.Response(200, json=answers.get(request.url.path))


def test_vllm_is_paused_reloaded_flushed_named_and_resumed(tmp_path) -> None:
    """Its caches are not reset by themselves: neither prefixes nor the features of images."""
    asked: list[str] = []
    update_weights(client(vllm, asked), "vllm", tmp_path, "step-9")
    assert asked == [
        "/pause",
        "/collective_rpc",
        "/reset_prefix_cache",
        "/reset_encoder_cache",
        "/update_weight_version",
        "/resume",
    ]


def failing(path: str, *, served: str | None, fails: int = 99) -> Answer:
    """A vLLM that fails at a path as often as `fails` says."""
    left = [fails]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models" and served is not None:
            return httpx.Response(200, json={"data": [{"id": "m", "root": served}]})
        if request.url.path == path and left[0] > 0:
            left[0] -= 1
            if path == "/resume":
                raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
            return httpx.Response(500, text="no such folder")
        return vllm(request)

    return answer


def test_a_vllm_that_cannot_load_goes_back_to_its_old_weights_before_it_is_resumed(
    tmp_path,
) -> None:
    """Resumed with the tensors that a failed reload leaves, 0.32.0 died of the next request; after
    a reload of the old folder it served on (both measured)."""
    asked: list[str] = []
    server = client(failing("/collective_rpc", served="/old", fails=1), asked)
    with pytest.raises(LabError, match=r"500 to /collective_rpc: no such folder; it serves /old"):
        update_weights(server, "vllm", tmp_path, "2")
    assert asked == [
        "/pause",
        "/collective_rpc",
        "/v1/models",
        "/collective_rpc",
        "/reset_prefix_cache",
        "/reset_encoder_cache",
        "/resume",
    ]


@pytest.mark.parametrize("served", [None, "/old"])
def test_a_vllm_with_nothing_to_go_back_to_is_said_to_have_lost_its_weights(
    tmp_path, served: str | None
) -> None:
    """It is resumed all the same: a paused one lets every later request hang forever."""
    asked: list[str] = []
    server = client(failing("/collective_rpc", served=served), asked)
    with pytest.raises(LabError, match=r"no such folder; its weights are gone.* start it anew"):
        update_weights(server, "vllm", tmp_path, "2")
    assert asked[-1] == "/resume"


def test_a_resume_that_is_cut_off_is_tried_again_and_hides_no_other_error(
    tmp_path, monkeypatch
) -> None:
    """In 2 of 12 failed pushes vLLM closed the connection; its resume failed on it."""
    monkeypatch.setattr(live_weights, "PAUSE_S", 0)
    asked: list[str] = []
    update_weights(client(failing("/resume", served=None, fails=2), asked), "vllm", tmp_path, "2")
    assert asked[-3:] == ["/resume"] * 3
    with pytest.raises(LabError, match="stays paused"):
        update_weights(client(failing("/resume", served=None), []), "vllm", tmp_path, "2")


def test_every_step_has_a_connection_of_its_own(tmp_path) -> None:
    heads: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        heads.append(request.headers["connection"])
        return vllm(request)

    update_weights(client(answer, []), "vllm", tmp_path, "2")
    assert set(heads) == {"close"}


def test_a_relative_folder_is_not_left_to_the_servers_own_folder(tmp_path, monkeypatch) -> None:
    (tmp_path / "step-2").mkdir()
    monkeypatch.chdir(tmp_path)
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content)["model_path"])
        return httpx.Response(200, json={"success": True})

    update_weights(client(answer, []), "sglang", Path("step-2"), "2")
    assert sent == [str(tmp_path / "step-2")]


def folder_of(path: Path, **shapes: tuple[int, ...]) -> Path:
    path.mkdir()
    save_file(
        {name: torch.zeros(shape) for name, shape in shapes.items()}, path / "model.safetensors"
    )
    return path


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_a_folder_on_this_machine_is_read_before_anything_is_asked_of_the_server(
    tmp_path, dialect
) -> None:
    """A reload that fails half way costs vLLM its weights; sglang loads what it finds."""
    served = folder_of(tmp_path / "served", head=(2, 3), tail=(4,))
    (tmp_path / "empty").mkdir()
    bad = {
        tmp_path / "nowhere": "is not there",
        tmp_path / "empty": r"has no \*\.safetensors",
        folder_of(tmp_path / "short", head=(2, 3)): r"1 of 2 tensors are missing, first 'tail'",
        folder_of(tmp_path / "other", head=(3, 2), tail=(4,)): r"1 have another shape",
    }
    asked: list[str] = []
    server = client(failing("", served=str(served)), asked)
    server.base_url = httpx.URL("http://127.0.0.1:1")
    for folder, words in bad.items():
        with pytest.raises(LabError, match="keeps its old weights: .*" + words):
            update_weights(server, dialect, folder, "2")
    assert set(asked) <= {"/v1/models"}
    same = folder_of(tmp_path / "same", head=(2, 3), tail=(4,))
    update_weights(server, dialect, same, "2")


def test_a_server_that_dies_of_an_update_is_one_error(tmp_path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    for dialect in ("vllm", "sglang"):
        with pytest.raises(LabError, match=r"http://engine broke off .*Connection refused"):
            update_weights(client(answer, []), dialect, tmp_path, "2")


def test_a_vllm_without_these_paths_is_told_how_to_start(tmp_path) -> None:
    with pytest.raises(LabError, match="VLLM_SERVER_DEV_MODE=1"):
        update_weights(client(lambda _: httpx.Response(404), []), "vllm", tmp_path, "2")


def test_sglang_is_one_request(tmp_path) -> None:
    asked: list[str] = []
    update_weights(client(lambda _: httpx.Response(200, json={}), asked), "sglang", tmp_path, "2")
    assert asked == [UPDATED]


def test_weights_that_are_new_beside_a_cache_that_is_not_are_flushed_until_it_works(
    tmp_path,
) -> None:
    """Seen once: a 400 although the weights ARE new; stale keys would give wrong output."""
    words = "Weights were updated, but the cache was not flushed because requests are still running"
    answers = [
        httpx.Response(400, json={"success": False, "message": words}),
        httpx.Response(400),
        httpx.Response(200),
    ]
    asked: list[str] = []
    update_weights(client(lambda _: answers.pop(0), asked), "sglang", tmp_path, "2")
    assert asked == [UPDATED, "/flush_cache", "/flush_cache"]


def test_weights_that_were_refused_are_an_error_with_the_servers_words(tmp_path) -> None:
    body = {"success": False, "message": "no such folder"}
    with pytest.raises(LabError, match=r"keeps its old weights: .*no such folder"):
        update_weights(client(lambda _: httpx.Response(400, json=body), []), "sglang", tmp_path, "")
