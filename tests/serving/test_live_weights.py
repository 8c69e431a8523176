"""New weights over the wire: all of the sequence or an error that says where it stopped."""

from collections.abc import Callable

import httpx
import pytest

from cua_lab.errors import LabError
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


def test_a_vllm_that_cannot_load_is_resumed_and_named(tmp_path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        bad = request.url.path == "/collective_rpc"
        return httpx.Response(500, text="no such folder") if bad else vllm(request)

    asked: list[str] = []
    with pytest.raises(LabError, match="500 to /collective_rpc: no such folder"):
        update_weights(client(answer, asked), "vllm", tmp_path, "2")
    assert asked == ["/pause", "/collective_rpc", "/resume"]


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
