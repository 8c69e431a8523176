"""Whatever comes from outside is taken, or refused in words: it crashes nobody and hangs nobody."""

import asyncio
import contextlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hud.capabilities import Capability
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.schema import CallError, parse_call, view_of
from cua_lab.computer.screen import DeadScreen, connect
from cua_lab.computer.tool import ComputerTool
from cua_lab.dataset.formats import readers
from cua_lab.desktop import same_process
from cua_lab.desktop.apps import Game2048
from cua_lab.desktop.rfb import RFBServer
from cua_lab.errors import LabError
from cua_lab.policy.policy import Policy, build_policy, load_policy
from cua_lab.policy.weights import weights_for
from cua_lab.recipes import parse_recipe
from cua_lab.records import read_episode, read_lines
from cua_lab.run.progress import Progress
from cua_lab.serving.shim import ShimTransport
from cua_lab.serving.toolcalls import parse_tool_calls
from cua_lab.training.checkpoint import corruption_of, latest_checkpoint
from tests.computer.test_limits import GREETING, init, update
from tests.dataset import test_formats
from tests.desktop.rawclient import RawClient
from tests.fuzzing import Clock, altered, damaged, few, json_values
from tests.policy.conftest import TINY, make_corpus
from tests.recordings import SGLANG, recording
from tests.run.support_kill import TINY as RECIPE

TALK = (
    b"RFB 003.008\n\x01\x01"
    + b"\0\0\0\0\x20\x18\0\x01\0\xff\0\xff\0\xff\0\x08\x10\0\0\0"
    + b"\x02\0\0\x02\0\0\0\0\0\0\0\x06"
    + b"\x03\0\0\0\0\0\0\x80\0\x80"
    + b"\x04\x01\0\0\0\0\xff\x51\x05\x01\0\x09\0\x09\x06\0\0\0\0\0\0\x02hi"
    + b"\x03\x01\0\0\0\0\0\x80\0\x80"
)
"""A client's side of a conversation."""


def test_no_bytes_of_a_client_bring_an_rfb_server_down(counted: Any) -> None:
    clock, loop = Clock(), asyncio.new_event_loop()
    server = loop.run_until_complete(RFBServer(Game2048(seed=1)).start())

    async def say(data: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            writer.write(data)
            writer.write_eof()
            while await reader.read(2**16):
                pass
        except OSError:
            pass
        finally:
            writer.close()

    @given(damaged(TALK) | st.binary(max_size=200))
    @few(60)
    def attack(data: bytes) -> None:
        clock.check()
        counted("fuzz-rfb-server", connections=1, bytes=len(data))
        loop.run_until_complete(asyncio.wait_for(say(data), 60))

    async def still_served() -> None:
        good = await RawClient.connect(server.port)
        assert (await good.screen()).shape == (128, 128, 3)
        good.close()
        await server.close()

    clock.run(attack)
    loop.run_until_complete(asyncio.wait_for(still_served(), 60))
    loop.close()


FRAME = (
    GREETING
    + init(8, 8, 4)
    + b"name"
    + update(8, 8, 0, bytes(256))
    + b"\x02"
    + update(8, 8, 0, bytes(256))
)


def test_no_bytes_of_an_rfb_server_are_more_than_a_dead_screen(counted: Any) -> None:
    clock = Clock()

    async def look(data: bytes) -> None:
        async def serve(reader: Any, writer: Any) -> None:
            writer.write(data)
            writer.write_eof()
            while await reader.read(2**16):
                pass
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        here = Capability.rfb(
            name="screen", url=f"rfb://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        )
        here.params[same_process.PARAM] = same_process.PROCESS_ID
        client = SimpleNamespace(manifest=SimpleNamespace(bindings=[here]))
        try:
            screen = await connect(client, timeout_s=60)
            tool = ComputerTool(client=screen, config=ToolConfig(screen_timeout_s=60))
            try:
                await tool.execute({"action": "screenshot"})
            finally:
                await screen.close()
        except DeadScreen:
            pass
        finally:
            server.close()

    @given(damaged(FRAME))
    @few(60)
    def attack(data: bytes) -> None:
        clock.check()
        counted("fuzz-rfb-client", connections=1, bytes=len(data))
        asyncio.run(asyncio.wait_for(look(data), 120))

    clock.run(attack)


CALLS = [
    {"action": "click", "x": 3, "y": 4, "button": "left"},
    {"action": "drag", "x": 1, "y": 2, "to_x": 3, "to_y": 4},
    {"action": "press", "keys": ["ctrl+a", "left"]},
    {"action": "type", "text": "hello"},
    {"action": "scroll", "x": 1, "y": 1, "direction": "down", "amount": 3},
    {"action": "wait", "seconds": 1},
]


def test_arguments_of_a_call_are_a_call_or_an_error_for_the_policy(counted: Any) -> None:
    clock, config = Clock(), ToolConfig()
    view = view_of(config, (128, 128))

    @given(st.sampled_from(CALLS).flatmap(altered) | json_values)
    @few(300)
    def attack(arguments: Any) -> None:
        clock.check()
        if not isinstance(arguments, dict):
            return
        counted("fuzz-arguments", calls=1)
        try:
            call = parse_call(arguments, view, config)
        except CallError as error:
            str(error).encode()
        else:
            assert call.at is None or all(0 <= v < 128 for v in call.at)

    clock.run(attack)


def test_a_servers_answer_is_exact_ids_or_an_error(counted: Any) -> None:
    clock = Clock()
    right = recording(SGLANG, "b6_forced_hermes_tool_call")["response"]
    asked = {"model": "m", "messages": [], "return_token_ids": True, "max_tokens": 80}

    async def ask(body: bytes) -> None:
        inner = httpx.MockTransport(lambda request: httpx.Response(200, content=body))
        shim = ShimTransport(inner, dialect="sglang", vocab_size=2**20)
        async with httpx.AsyncClient(transport=shim) as client:
            answer = await client.post("http://engine/v1/chat/completions", json=asked)
        ids = shim.turns[-1].output_ids
        assert answer.json()["choices"][0]["token_ids"] == list(ids)
        assert all(0 <= token < 2**20 for token in ids)

    @given(
        altered(right).map(lambda body: json.dumps(body).encode())
        | damaged(json.dumps(right).encode())
    )
    @few(150)
    def attack(body: bytes) -> None:
        clock.check()
        counted("fuzz-shim", answers=1, bytes=len(body))
        try:
            asyncio.run(ask(body))
        except LabError as error:
            str(error).encode()

    clock.run(attack)


def test_whatever_a_policy_says_is_text_and_calls(counted: Any) -> None:
    clock = Clock()
    said = (
        '<tool_call>\n{"name": "computer", "arguments": {"action": "click", "x": 1}}\n</tool_call>'
    )
    texts = damaged(said.encode()).map(lambda data: data.decode("utf-8", "replace"))
    wrapped = json_values.map(lambda v: f"<tool_call>\n{json.dumps(v)}\n</tool_call>")

    @given(texts | wrapped | st.text(st.characters()))
    @few(300)
    def attack(text: str) -> None:
        clock.check()
        counted("fuzz-parser", texts=1)
        for call in parse_tool_calls(text, ["computer"]).calls:
            assert call.name == "computer"
            json.loads(call.arguments.encode())

    clock.run(attack)


def test_a_recipe_is_read_or_refused_in_one_line(counted: Any) -> None:
    clock = Clock()

    @given(damaged(RECIPE.encode()).map(lambda data: data.decode("utf-8", "replace")))
    @few(100)
    def attack(text: str) -> None:
        clock.check()
        counted("fuzz-recipes", recipes=1)
        try:
            parse_recipe(text, file="fuzzed.yaml")
        except LabError as error:
            str(error).encode()

    clock.run(attack)


ROWS = {
    "screenspot": test_formats.SCREENSPOT,
    "screenspot-hf": test_formats.HUB,
    "agentnet": test_formats.AGENTNET,
    "aguvis": test_formats.AGUVIS,
    "osworld": test_formats.OSWORLD,
    "webarena": test_formats.WEBARENA,
}


def test_a_public_row_is_read_or_set_aside_with_its_reason(counted: Any) -> None:
    clock = Clock()
    pairs = st.sampled_from(sorted(ROWS)).flatmap(
        lambda name: st.tuples(st.just(name), altered(ROWS[name]))
    )

    @given(pairs)
    @few(300)
    def attack(pair: tuple[str, Any]) -> None:
        name, row = pair
        clock.check()
        if not isinstance(row, dict):
            return
        counted("fuzz-rows", rows=1)
        try:
            for ours in readers()[name](row, ""):
                json.dumps(ours)
        except LabError as error:
            str(error).encode()

    clock.run(attack)


LINE = json.dumps(
    {"task": "t", "phase": "grpo", "turns": [{"action": {"x": 1}, "text": "é"}]}
).encode()


def test_a_record_file_is_read_or_refused_in_words(tmp_path: Path, counted: Any) -> None:
    clock, path = Clock(), tmp_path / "episodes.jsonl"

    @given(damaged(LINE + b"\n" + LINE + b"\n"))
    @few(200)
    def attack(data: bytes) -> None:
        clock.check()
        counted("fuzz-records", files=1, bytes=len(data))
        path.write_bytes(data)
        try:
            for record in read_lines(path):
                read_episode(record)
        except LabError as error:
            str(error).encode()

    clock.run(attack)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Path]:
    policy = build_policy(TINY, make_corpus(), seed=0)
    return policy, policy.save(tmp_path_factory.mktemp("fuzz") / "model")


def test_damaged_weights_and_manifests_are_refused_and_change_nothing(
    model: tuple[Policy, Path], tmp_path: Path, counted: Any
) -> None:
    policy, folder = model
    clock, copy = Clock(), tmp_path / "copy"
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    files = sorted(
        path.name for path in folder.iterdir() if path.suffix in (".json", ".safetensors")
    )

    @given(
        st.sampled_from(files).flatmap(
            lambda name: st.tuples(st.just(name), damaged((folder / name).read_bytes()[:4000]))
        )
    )
    @few(40)
    def attack(pair: tuple[str, bytes]) -> None:
        name, data = pair
        clock.check()
        counted("fuzz-checkpoints", files=1, bytes=len(data))
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        (copy / name).write_bytes(data + (folder / name).read_bytes()[4000:])
        for read in (lambda: weights_for(policy.model, copy), lambda: load_policy(copy)):
            try:
                read()
            except LabError as error:
                str(error).encode()
        now = policy.model.state_dict()
        assert all(now[key].equal(tensor) for key, tensor in before.items())
        step = tmp_path / "steps/step-000001/training"
        step.mkdir(parents=True, exist_ok=True)
        (step / "state.json").write_bytes(data)
        assert corruption_of(step.parent) is not None
        assert latest_checkpoint(tmp_path / "steps") is None
        with contextlib.suppress(LabError, ValueError, RecursionError):  # or it is no JSON
            Progress.read(json.loads(data), tmp_path)

    clock.run(attack)
