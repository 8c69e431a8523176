"""A run against an engine outside the process: the lab's own server in sglang's place."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from cua_lab.demonstrators.demos import corpus_of
from cua_lab.engine.engine import Engine
from cua_lab.errors import LabError
from cua_lab.play.url_worker import UrlWorker
from cua_lab.policy.policy import build_policy, load_policy
from cua_lab.recipes import load_recipe
from cua_lab.recipes.settings import SftSettings
from cua_lab.run.engines import open_engine
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
from cua_lab.run.stage_context import StageContext, build_stage, demonstrator_of
from cua_lab.serving import outside
from cua_lab.serving.http_thread import in_background
from cua_lab.serving.outside import OutsideEngine
from cua_lab.serving.server import create_app
from cua_lab.training.warmup import sft

SMALL = [
    "stages.game.sft.steps=2",
    "eval.episodes=4",
    "eval.ablations=[]",
    "grpo.steps=2",
]


def setup_of(*overrides: str) -> StageContext:
    recipe = load_recipe("smoke", list(overrides))
    return build_stage(recipe, recipe.stage("game"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that makes valid calls now and then."""
    context = setup_of()
    player = demonstrator_of(context)
    policy = build_policy(context.stage.policy, corpus_of((player,)), seed=3)
    sft(
        policy, player, SftSettings(steps=60, batch=16, demonstrations=128, lr=4e-3), progress=False
    )
    return policy.save(tmp_path_factory.mktemp("outside") / "tiny")


@dataclass
class Served:
    """A server, and the engine behind it."""

    url: str
    engine: Engine


@pytest.fixture
def server(checkpoint: Path) -> Iterator[Served]:
    engine = Engine(load_policy(checkpoint))
    with in_background(create_app(engine)) as (host, port):
        yield Served(f"http://{host}:{port}", engine)
    engine.close()


def outside_of(server: Served, checkpoint: Path, pushes: Path, **options: Any) -> OutsideEngine:
    return OutsideEngine(load_policy(checkpoint), "sglang", pushes, url=server.url, **options)


def shift(engine: OutsideEngine, by: float) -> None:
    """Other weights, as a step leaves them."""
    engine.policy.model.lm_head.weight.data.add_(by)


def test_each_push_has_a_folder_and_the_newest_stay(
    server: Served, checkpoint: Path, tmp_path: Path
) -> None:
    engine = outside_of(server, checkpoint, tmp_path / "pushes", keep=2)
    assert engine.name == server.engine.policy.name, "the name is the server's own"
    for step in range(3):
        shift(engine, 0.01)
        engine.weights_updated(f"click-{step}")
        assert server.engine.weight_version == f"click-{step}"
    names = [path.name for path in sorted((tmp_path / "pushes").iterdir())]
    assert names == ["push-000002", "push-000003"]
    theirs = server.engine.policy.model.lm_head.weight
    assert theirs.equal(engine.policy.model.lm_head.weight)


def test_a_grpo_run_learns_against_a_server_outside_the_process(
    server: Served, checkpoint: Path, tmp_path: Path
) -> None:
    """Every step's samples come over HTTP, and engine and trainer agree after every push."""
    overrides = [
        "engine.kind=sglang",
        f"engine.url={server.url}",
        f"policy.checkpoint={checkpoint}",
        *SMALL,
    ]
    recipe = load_recipe("smoke", overrides)
    folder = RunFolder.create(tmp_path / "run", resume=False)
    asyncio.run(run_recipe(replace(recipe, stages=(recipe.stage("game"),)), folder))
    lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    steps = [r for line in lines if (r := json.loads(line))["phase"] == "grpo"]
    assert len(steps) == 2
    assert all(step["logprob_gap_max"] < 1e-4 for step in steps)
    assert server.engine.weight_version.startswith("game-")
    assert len(list((folder.path / "pushes" / "game").iterdir())) == 2


def test_a_policy_that_the_server_does_not_have_is_refused(tmp_path: Path) -> None:
    context = setup_of("engine.kind=sglang", "engine.url=http://127.0.0.1:9")
    policy: Any = None
    with pytest.raises(LabError, match=r"set policy\.checkpoint"):
        open_engine(context, policy, tmp_path)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["engine.url=http://127.0.0.1:9"], "engine.kind is embedded"),
        (["engine.kind=vllm", "engine.url=127.0.0.1:9"], "give http://host:port"),
        (["engine.kind=tgi"], "tgi"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(LabError, match=words):
        load_recipe("smoke", overrides)


def worker_of(engine: OutsideEngine) -> UrlWorker:
    context = setup_of()
    return UrlWorker(engine, context.config, context.runtime, concurrency=4)


def test_an_answer_under_other_weights_than_were_pushed_is_refused(
    server: Served, checkpoint: Path, tmp_path: Path
) -> None:
    """Somebody else pushed in between: the gap would tell, but not what happened."""
    engine = outside_of(server, checkpoint, tmp_path)
    plans = setup_of().training_plans(0)[:2]
    episodes = asyncio.run(worker_of(engine).play(plans))
    assert {turn.weight_version for e in episodes for turn in e.turns} == {"start"}
    server.engine.weights_updated("someone-else")
    with pytest.raises(LabError, match="under the weights 'someone-else', but 'start' were pushed"):
        asyncio.run(worker_of(engine).play(plans))


def test_a_server_that_went_away_costs_no_episode_once_it_is_back(
    server: Served, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights are pushed again, and what it cost is played again."""
    engine = outside_of(server, checkpoint, tmp_path)
    shift(engine, 0.01)
    engine.weights_updated("click-1")
    real = outside.OutsideEngine._answers
    away = iter([False, False, True])
    monkeypatch.setattr(engine.__class__, "_answers", lambda self: next(away, True) and real(self))
    broken = itertools.chain([True] * 2, itertools.repeat(False))

    def transport(url: str) -> httpx.AsyncBaseTransport:
        def refuse(request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("Connection refused")

        return httpx.MockTransport(refuse) if next(broken) else httpx.AsyncHTTPTransport()

    monkeypatch.setattr("cua_lab.play.url_worker.open_transport", transport)
    server.engine.weights_updated("restarted")
    episodes = asyncio.run(worker_of(engine).play(setup_of().training_plans(0)[:2]))
    assert [episode.status == "failed" for episode in episodes] == [False, False]
    assert {turn.weight_version for e in episodes for turn in e.turns} == {"click-1"}


def test_a_server_that_stays_away_is_one_clear_error(
    server: Served, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = outside_of(server, checkpoint, tmp_path, back_s=0.0)
    monkeypatch.setattr(engine.__class__, "_answers", lambda self: False)
    with pytest.raises(LabError, match=r"did not come back within 0 s; .* --resume"):
        engine.revive()


def test_ids_on_record_need_an_engine_that_takes_them(
    server: Served, checkpoint: Path, tmp_path: Path
) -> None:
    engine = outside_of(server, checkpoint, tmp_path)
    engine.dialect = "vllm"
    context = setup_of()
    with pytest.raises(LabError, match=r"agent\.token_in needs an engine"):
        UrlWorker(engine, context.config, context.runtime, token_in=True)
