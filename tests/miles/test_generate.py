"""`generate` on real HUD episodes, with the embedded engine where Miles' router would be."""

import asyncio
import logging
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cua_lab.errors import LabError
from cua_lab.miles.episodes import status_of
from cua_lab.miles.generate import generate, refuse_cut_distributions, refuse_partial
from cua_lab.miles.reward import graded_advantages, reward_func
from cua_lab.miles.stopping import RunEnds, ends_the_run
from cua_lab.play.episode import Action, Episode
from cua_lab.policy.policy import Policy
from tests.miles.standin import StandIn, reward_args, sample_classes

SAMPLING = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "max_new_tokens": 12288,
    "sampling_seed": 7,
}
SABOTAGED = 3
GROUP = 8
TASK = {
    "env": "lab",
    "id": "2048-score",
    "slug": "2048-score",
    "args": {"seed": 5, "target": 200, "turns": 2, "width": 96, "height": 96},
}


def members(sample_class: Any) -> list[Any]:
    """A group of eight; the env refuses the arguments of one, so it fails before its first turn."""
    bad = {**TASK, "args": {**TASK["args"], "target": 0}}
    return [
        sample_class(group_index=4, index=i, metadata={"hud_task": bad if i == SABOTAGED else TASK})
        for i in range(GROUP)
    ]


def play(args: Any, samples: list[Any]) -> list[Any]:
    async def all_of_them() -> list[Any]:
        made = await asyncio.gather(*(generate(args, s, dict(SAMPLING)) for s in samples))
        return [sample for one in made for sample in one]

    return asyncio.run(all_of_them())


@pytest.fixture(scope="module", params=sample_classes())
def group(request: pytest.FixtureRequest, session_args: Any) -> list[Any]:
    return play(session_args, members(request.param))


def good(group: list[Any]) -> list[Any]:
    return [sample for i, sample in enumerate(group) if i != SABOTAGED]


def test_a_sample_is_filled_in_place_and_keeps_what_miles_put_there(group: list[Any]) -> None:
    for i, sample in enumerate(group):
        assert (sample.group_index, sample.index) == (4, i)
        assert sample.metadata["hud_task"]["id"] == "2048-score"


def test_every_outcome_satisfies_miles_own_rules(group: list[Any]) -> None:
    """Miles asserts these when it collects a step: one bad write-off would end the run."""
    for sample in group:
        sample.validate()
        assert sample.loss_mask is not None
        assert sample.rollout_log_probs is not None
        assert all(map(math.isfinite, sample.rollout_log_probs))
        assert set(sample.loss_mask) <= {0, 1}


def test_played_episodes_carry_their_tokens_text_status_and_reward(
    group: list[Any], warm_policy: Policy
) -> None:
    for sample in good(group):
        about = sample.metadata["cua_lab"]
        assert sample.status in (type(sample).Status.COMPLETED, type(sample).Status.TRUNCATED)
        assert not sample.remove_sample
        assert sample.response == warm_policy.tokenizer.decode(
            sample.tokens[-sample.response_length :]
        )
        assert sample.reward == about["reward"]
        assert 0.0 <= sample.reward <= 1.0
        assert about["graded"]
        assert about["turns"] in (1, 2)  # an answer without a call ends the episode
        assert about["trained_tokens"] == sum(sample.loss_mask) > 0
        assert (about["part"], about["parts"]) == (0, 1)
        assert sample.weight_versions == []  # "default" is no number, and Miles takes the least
    assert len({sample.reward for sample in good(group)}) > 1, "nothing to learn from"


def test_log_probabilities_are_those_of_the_trainer(group: list[Any], warm_policy: Policy) -> None:
    """Positions, images and ids are all in it: wrong 1-D positions alone would give 0.14."""
    import torch

    from cua_lab.policy.scoring import Example, collate, score

    for sample in good(group):
        inputs = sample.multimodal_train_inputs
        batch = collate(
            warm_policy,
            [
                Example(
                    sample.tokens,
                    inputs["pixel_values"].numpy(),
                    inputs["image_grid_thw"].numpy(),
                )
            ],
        )
        loss_mask = torch.zeros(1, len(sample.tokens), dtype=torch.bool)
        loss_mask[0, -sample.response_length :] = torch.tensor(sample.loss_mask, dtype=torch.bool)
        with torch.inference_mode():
            ours = score(warm_policy, batch, loss_mask).logprobs[loss_mask].numpy()
        mask = np.array(sample.loss_mask, dtype=bool)
        assert np.abs(ours - np.array(sample.rollout_log_probs)[mask]).max() < 1e-4


def test_pixels_match_the_image_tokens_of_every_sample(
    group: list[Any], warm_policy: Policy
) -> None:
    """The write-off too: miles#2406, ranks that skip the vision tower hang for half an hour."""
    for i, sample in enumerate(group):
        inputs = sample.multimodal_train_inputs
        pads = sample.tokens.count(warm_policy.image_token_id)
        patches = int(inputs["image_grid_thw"].prod(dim=1).sum())
        assert patches == len(inputs["pixel_values"]) == pads * warm_policy.merge**2
        images = len(inputs["image_grid_thw"])
        assert images == 1 if i == SABOTAGED else images in (1, 2)  # an invalid call shows none
        assert str(inputs["pixel_values"].dtype) == "torch.float32"
        assert str(inputs["image_grid_thw"].dtype) == "torch.int64"
    assert any(len(s.multimodal_train_inputs["image_grid_thw"]) == 2 for s in group)


def test_a_failed_episode_is_one_dummy_image_and_nothing_else(
    group: list[Any], warm_policy: Policy
) -> None:
    sample = group[SABOTAGED]
    control = warm_policy.tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>"])
    assert [sample.tokens[0], sample.tokens[-1]] == control
    assert set(sample.tokens[1:-1]) == {warm_policy.image_token_id}
    assert sample.status is type(sample).Status.FAILED
    assert sample.remove_sample
    assert (sample.response, sample.response_length) == ("", 0)
    assert (sample.loss_mask, sample.rollout_log_probs) == ([], [])
    assert "target must be at least 1" in sample.metadata["cua_lab"]["reason"]
    assert not sample.metadata["cua_lab"]["graded"]


def test_the_group_is_scored_without_its_failed_member(group: list[Any]) -> None:
    raw, advantages = graded_advantages(reward_args(), group)
    rewards = [sample.reward for sample in good(group)]
    mean = sum(rewards) / len(rewards)
    assert advantages[SABOTAGED] == 0.0
    assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-9)
    assert raw[SABOTAGED] == pytest.approx(mean)
    assert asyncio.run(reward_func(None, group)) == [sample.reward for sample in group]


def test_one_line_an_episode(miles_args: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="cua_lab.miles")
    samples = members(StandIn)
    play(miles_args, [samples[0], samples[SABOTAGED]])
    lines = sorted(r.getMessage() for r in caplog.records if r.name == "cua_lab.miles")
    assert len(lines) == 2
    assert lines[0].startswith("episode group-4-0 of 2048-score: reward 0.")
    assert all(word in lines[0] for word in (" turns", "tokens", "divergences"))
    assert lines[1].startswith("episode group-4-3 of 2048-score failed after 0 turns")


def test_the_same_seed_plays_the_same_episode(miles_args: Any, group: list[Any]) -> None:
    """Where the server honours seeds: the embedded engine does, sglang in deterministic mode."""
    (again,) = play(miles_args, members(type(group[0]))[:1])
    assert again.tokens == group[0].tokens


def test_a_failed_episode_of_an_evaluation_has_no_reward(miles_args: Any) -> None:
    """Miles asks for the reward where generate left none; `None` is what it calls failed."""
    sample = members(StandIn)[SABOTAGED]
    (made,) = asyncio.run(generate(miles_args, sample, dict(SAMPLING), evaluation=True))
    assert made.reward is None
    assert asyncio.run(reward_func(None, made)) is None


def test_no_response_is_longer_than_the_recipe_says(miles_args: Any, group: list[Any]) -> None:
    """A cut lies between turns: the first answer fits, the second does not."""
    two = next(s for s in good(group) if s.metadata["cua_lab"]["turns"] == 2)
    miles_args.cua_lab["context"]["response"] = two.response_length - 1
    again = members(StandIn)[two.index]
    (cut,) = play(miles_args, [again])
    assert cut.metadata["cua_lab"]["turns"] == 1
    assert cut.metadata["cua_lab"]["ended_by"] == "too_long"
    assert cut.tokens == two.tokens[: len(cut.tokens)]


@pytest.mark.parametrize(
    ("said", "arguments", "status"),
    [("", None, "truncated"), (" \n", None, "truncated"), ("Done.", None, "completed"),
     ("", {"action": "finish"}, "completed")],
)  # fmt: skip
def test_an_answer_with_nothing_in_it_completes_nothing(
    said: str, arguments: dict[str, Any] | None, status: str
) -> None:
    action = Action(arguments, valid=True, text=said, screenshot=None, thought=said)
    episode = Episode(
        id="e", group="g", task="t", turns=(), actions=(action,), screenshots=(), reward=0.0,
        status="completed",
    )  # fmt: skip
    assert status_of(episode) == status


def test_partial_rollouts_are_refused_with_the_reason() -> None:
    with pytest.raises(LabError, match="--partial-rollout"):
        refuse_partial(SimpleNamespace(partial_rollout=True), StandIn())
    with pytest.raises(LabError, match="response of 5 tokens"):
        refuse_partial(
            SimpleNamespace(partial_rollout=False), StandIn(tokens=[1] * 9, response_length=5)
        )


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 50}])
def test_distributions_whose_log_probabilities_the_server_does_not_give_are_refused(
    cut: dict[str, float],
) -> None:
    """trl#6789: top_p 0.8 gave a mean ratio of 0.895 on the policy's own samples."""
    refuse_cut_distributions(SAMPLING)
    with pytest.raises(LabError, match="another distribution"):
        refuse_cut_distributions(SAMPLING | cut)


def test_a_sample_without_a_task_row_says_where_rows_come_from(miles_args: Any) -> None:
    with pytest.raises(RunEnds, match="cua-lab data mint"):
        play(miles_args, [StandIn(index=1)])


def test_a_machine_on_which_nothing_works_stops_the_run(miles_args: Any) -> None:
    """Miles refills a batch of failures forever, burning GPUs in silence."""
    miles_args.cua_lab["runtime"]["stop_after_failures"] = 2
    samples = [StandIn(group_index=0, index=i, metadata={"hud_task": TASK}) for i in range(2)]
    miles_args.sglang_router_port = 9  # discard: nobody listens
    with pytest.raises(RunEnds, match="2 episodes in a row failed"):
        play(miles_args, samples)


def test_an_episode_that_takes_too_long_is_written_off(
    miles_args: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cua_lab.envs.lab.env as lab

    async def never(self: Any, **_: Any) -> Any:
        await asyncio.sleep(60)
        yield {}

    monkeypatch.setattr(lab.LabEnvironment, "score_2048", never)
    miles_args.cua_lab["agent"]["timeout_s"] = 1
    (sample,) = play(miles_args, [StandIn(group_index=0, index=0, metadata={"hud_task": TASK})])
    sample.validate()
    assert sample.status is StandIn.Status.FAILED
    assert sample.metadata["cua_lab"]["reason"]


def refill(call: Any, *, rounds: int) -> int:
    """Miles' default rollout: an `Exception` of a group is logged, and another group asked for."""

    async def loop() -> int:
        for played in range(rounds):
            done, _ = await asyncio.wait([asyncio.create_task(call())])
            try:
                return next(task.result() for task in done) and played
            except Exception:
                continue
        return rounds

    return asyncio.run(loop())


def test_a_fault_of_the_set_up_goes_through_miles_refill_loop() -> None:
    """1,614 episodes in 75 s and no end, as a `LabError`; as `RunEnds` the first is the last."""

    async def broken() -> None:
        raise LabError("no router")

    assert refill(broken, rounds=50) == 50
    with pytest.raises(RunEnds, match="no router"):
        refill(ends_the_run(broken), rounds=50)


def test_an_episode_is_a_list_whose_parts_share_a_rollout(group: list[Any]) -> None:
    """Miles asserts `rollout_id` on a list of several, and cannot sort lists beside samples."""
    assert [sample.rollout_id for sample in group] == [sample.index for sample in group]
