"""The main job on a real browser, in the small: record, warm up, GRPO, measure, report."""

import asyncio
from functools import partial

import pytest

from cua_lab.demonstrators import demos, recorder
from cua_lab.recipes import load_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
from tests.conftest import needs_chromium

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SMALL = (
    "run.concurrency=2",
    "policy.hidden=32",
    "policy.layers=1",
    "policy.vision_hidden=32",
    "sft.demonstrations=4",
    "sft.steps=2",
    "sft.batch=4",
    "sft.stop_at=null",
    "grpo.steps=1",
    "grpo.groups=2",
    "grpo.group_size=2",
    "eval.episodes=2",
)


@pytest.fixture
def few(monkeypatch):
    """Two desktops, and no more demonstrations than are asked for."""
    needs_chromium()
    monkeypatch.setattr(recorder, "AT_ONCE", 2)
    monkeypatch.setattr(recorder, "BLOCK", 2)
    monkeypatch.setattr(demos, "corpus_of", partial(demos.corpus_of, count=4))


@pytest.mark.parametrize(
    ("name", "task", "more"),
    [
        ("miniwob", "miniwob", ["tasks.vary.page=[click-test-2, click-dialog]"]),
        ("browser-2048", "2048-score", ["agent.max_turns=2", "tasks.args.turns=2"]),
    ],
)
def test_a_run_on_a_browser_leaves_what_every_run_leaves(few, tmp_path, name, task, more) -> None:
    if name == "miniwob":
        pytest.importorskip("miniwob", reason="MiniWoB++ is not installed")
    recipe = load_recipe(name, [*SMALL, *more])
    folder = RunFolder.create(tmp_path / name, resume=False)
    summary = asyncio.run(run_recipe(recipe, folder))
    assert summary["episodes"]["failed"] == 0
    assert sum(summary["episodes"].values()) == 4
    result = summary["tasks"][task]
    assert set(result["ablations"]) == {"shuffled", "blank", "random"}
    if name == "miniwob":
        assert set(result["by_variant_after"]) == {"click-test-2", "click-dialog"}
        assert -1 <= result["reward_after"]["mean"] <= 1
    assert (folder.path / "summary.json").exists()
    assert (folder.path / "report.html").exists()
    assert any((folder.path / "frames").glob("eval_after-*.png"))
