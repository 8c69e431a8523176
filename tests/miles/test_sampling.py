"""What Miles asks of sampling reaches the server whole."""

import dataclasses
from typing import Any

import pytest

from cua_lab.miles.episodes import EpisodeRequest, EpisodeRunner
from cua_lab.miles.recipe import load_miles_recipe
from cua_lab.serving.sampling_request import NEUTRAL


def sent(sampling: dict[str, Any]) -> dict[str, Any]:
    """Fields of the chat requests of an episode."""
    parts: dict[str, Any] = {field.name: None for field in dataclasses.fields(EpisodeRunner)}
    parts |= {"recipe": load_miles_recipe(), "model": "m", "base_url": "", "failures": 0}
    player = EpisodeRunner(**parts)
    asked = player._config(EpisodeRequest({}, "g", "e", sampling, None)).completion_kwargs
    return {**asked, **asked["extra_body"]}


@pytest.mark.parametrize("top_k", [-1, 0, None])
def test_everything_is_said_also_where_miles_means_nothing_by_it(top_k: int | None) -> None:
    """top_k -1 was dropped, and sglang took 20 from the checkpoint (verl#7270)."""
    said = sent({"temperature": 0.8, "top_p": 1.0, "top_k": top_k, "max_new_tokens": 64})
    assert {name: said[name] for name in NEUTRAL} == {**NEUTRAL, "temperature": 0.8}
    assert said["max_tokens"] == 64
    assert said["return_token_ids"] is True


def test_an_evaluations_own_options_are_passed_on() -> None:
    said = sent({"temperature": 0.0, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.05})
    assert (said["top_p"], said["top_k"], said["repetition_penalty"]) == (0.9, 20, 1.05)
    assert said["min_p"] == 0.0
