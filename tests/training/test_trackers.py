"""Trackers hear every number, and keys come from files alone."""

import sys
from types import SimpleNamespace

import pytest

from cua_lab.errors import LabError
from cua_lab.recipes.sft_recipe import TrackSettings, WandbSettings
from cua_lab.training.trackers import Trackers


def test_tensorboard_gets_each_number_at_its_step(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trackers = Trackers(TrackSettings(tensorboard=True), tmp_path, {})
    for step in (1, 2):
        trackers.log(step, {"loss": 0.5 / step, "held_out_loss": None})
    trackers.close()
    seen = EventAccumulator(str(tmp_path / "tensorboard"))
    seen.Reload()
    assert seen.Tags()["scalars"] == ["loss"]  # what was not measured is not drawn as 0
    assert [(event.step, event.value) for event in seen.Scalars("loss")] == [(1, 0.5), (2, 0.25)]


@pytest.fixture
def wandb(monkeypatch):
    """The library's three calls, recorded."""
    heard = SimpleNamespace(init=None, logged=[], finished=False)

    def init(**settings):
        heard.init = settings
        return SimpleNamespace(
            log=lambda values, step: heard.logged.append((step, values)),
            finish=lambda: setattr(heard, "finished", True),
        )

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    return heard


def test_wandb_reads_its_key_from_the_file_and_from_nowhere_else(
    tmp_path, wandb, monkeypatch
) -> None:
    import os

    key = tmp_path / "key"
    key.write_text("secret\n")
    key.chmod(0o600)
    settings = TrackSettings(wandb=WandbSettings("clicks", key_file=str(key)))
    trackers = Trackers(settings, tmp_path / "mine", {"seed": 0})
    trackers.log(3, {"loss": 0.1})
    trackers.close()
    assert os.environ["WANDB_API_KEY"] == "secret"
    monkeypatch.delenv("WANDB_API_KEY")
    assert "secret" not in str(wandb.init)
    assert (wandb.init["project"], wandb.init["id"], wandb.init["resume"]) == (
        "clicks",
        "mine",
        "allow",
    )
    assert wandb.logged == [(3, {"loss": 0.1})]
    assert wandb.finished


def test_without_a_key_file_or_the_library_it_says_what_to_do(tmp_path, wandb, monkeypatch):
    settings = TrackSettings(wandb=WandbSettings("clicks", key_file=str(tmp_path / "none")))
    with pytest.raises(LabError, match="none cannot be read"):
        Trackers(settings, tmp_path, {})
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(LabError, match="pip install wandb"):
        Trackers(settings, tmp_path, {})
