"""One contract for the embedded engine, vLLM and sglang: what training takes from an episode.

Episodes of the lab's env are played through HUD over HTTP, stitched, and teacher-forced in plain
transformers, which shares nothing with an engine but the checkpoint on disk.
"""

import asyncio
import itertools
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cua_lab.engine.chat_prompts import ChatPrompts
from cua_lab.errors import LabError
from cua_lab.play.episode import Episode, play
from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import Example, collate, masked_logits, score
from cua_lab.run.stage_context import StageContext
from cua_lab.serving import live_weights
from cua_lab.serving.live_weights import update_weights, weights_client
from cua_lab.serving.shim import ShimTransport
from cua_lab.serving.token_in import token_in_of
from cua_lab.stitching.codec import codec_from_tokenizer
from cua_lab.stitching.episode_images import episode_images
from cua_lab.stitching.sample import Sample, samples_of
from cua_lab.stitching.stitch import stitch
from cua_lab.stitching.stitched import Stitched
from tests.engines.conftest import TURNS, Trained
from tests.engines.servers import NAME, Server

SEEDS = (1, 2, 3)
TEMPERATURE = 0.6
"""Other than 1, so that a server that leaves it out of its log-probabilities is found out."""


class Heard(httpx.AsyncBaseTransport):
    """Keeps the body of each request that goes through it."""

    def __init__(self, inner: httpx.AsyncBaseTransport, bodies: list[dict[str, Any]]) -> None:
        self.inner, self.bodies = inner, bodies

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(json.loads(request.content))
        return await self.inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass(frozen=True, slots=True)
class Table:
    """Who plays what against whom."""

    server: Server
    game: StageContext
    policy: Policy
    heard: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of the requests that were sent."""

    def episodes(self, seeds: Sequence[int] = SEEDS, *, token_in: bool = False, **asked: Any):
        """2048 from each seed, all at once; `asked` are fields of every request."""

        async def all_of_them() -> list[Episode]:
            return await asyncio.gather(*(self._play(seed, token_in, asked) for seed in seeds))

        return asyncio.run(all_of_them())

    async def _play(self, seed: int, token_in: bool, asked: dict[str, Any]) -> Episode:
        forbidden = () if self.server.forbids_itself else self.policy.forbidden_ids
        more = asked.pop("forbid", ())
        shim = ShimTransport(
            Heard(httpx.AsyncHTTPTransport(), self.heard),
            dialect=self.server.dialect,
            seed=seed,
            vocab_size=self.policy.vocab_size,
            stop_ids=frozenset(self.policy.stop_ids),
            forbidden_ids=(*forbidden, *more),
            token_in=token_in_of(self.policy) if token_in else None,
        )
        config = self.game.config
        kwargs = config.completion_kwargs | {"temperature": TEMPERATURE} | asked
        return await play(
            self.game.task(seed),
            config.model_copy(update={"model": NAME, "completion_kwargs": kwargs}),
            shim,
            runtime=self.game.runtime,
            id=f"episode-{seed}",
            group="g",
            timeout_s=120,
            turns=lambda: tuple(shim.turns),
            base_url=f"{self.server.url}/v1/",
        )

    def stitched(self, episode: Episode) -> Stitched:
        """The whole episode as one sequence."""
        assert episode.status != "failed", episode.error
        (sequence,) = stitch(episode.turns, codec_from_tokenizer(self.policy.tokenizer))
        return sequence

    def sample(self, episode: Episode) -> Sample:
        """The sequence with its pixels, every image counted."""
        images = episode_images(episode.screenshots, self.policy.vision, merge=self.policy.merge)
        (sample,) = samples_of([self.stitched(episode)], images, reward=0.0, group="g", episode="e")
        return sample


@pytest.fixture
def table(server: Server, game: StageContext, checkpoints: tuple[Trained, Trained]) -> Table:
    return Table(server, game, checkpoints[0].policy)


@pytest.fixture(scope="module")
def played(
    server: Server, game: StageContext, checkpoints: tuple[Trained, Trained]
) -> list[Episode]:
    """Episodes that several tests look at."""
    return Table(server, game, checkpoints[0].policy).episodes()


@pytest.fixture(scope="session")
def references(checkpoints: tuple[Trained, Trained]) -> tuple[Any, Any]:
    """Both checkpoints as transformers alone loads them."""
    from transformers import AutoModelForImageTextToText

    first, second = (
        AutoModelForImageTextToText.from_pretrained(str(c.folder), dtype="float32").eval()
        for c in checkpoints
    )
    return first, second


def sampled_positions(stitched: Stitched) -> torch.Tensor:
    """(1, T) bool: sampled tokens that still stand in the context they were sampled in."""
    loss_mask = torch.zeros(1, len(stitched.tokens), dtype=torch.bool)
    loss_mask[0, stitched.response_start :] = torch.tensor(stitched.loss_mask, dtype=torch.bool)
    for start, end in stitched.off_context:
        loss_mask[0, start:end] = False
    return loss_mask


def as_sampled(stitched: Stitched, loss_mask: torch.Tensor) -> torch.Tensor:
    """What the server said, at those positions."""
    before = [float("nan")] * stitched.response_start
    return torch.tensor([*before, *stitched.logprobs])[loss_mask[0]]


def forced(
    model: Any,
    policy: Policy,
    sample: Sample,
    loss_mask: torch.Tensor,
    *,
    temperature: float = TEMPERATURE,
    forbid: Sequence[int] = (),
    pixels: np.ndarray | None = None,
) -> torch.Tensor:
    """Log-probabilities of the sequence's own tokens by transformers' own positions and vision."""
    ids = torch.tensor([sample.stitched.tokens])
    shown = sample.pixel_values if pixels is None else pixels
    with torch.inference_mode():
        logits = model(
            input_ids=ids,
            pixel_values=torch.from_numpy(shown),
            image_grid_thw=torch.from_numpy(sample.image_grid_thw),
            mm_token_type_ids=(ids == policy.image_token_id).int(),
        ).logits[0, :-1]  # (T - 1, V)
        masked = masked_logits(
            logits, temperature=temperature, forbidden_ids=(*policy.forbidden_ids, *forbid)
        )
        spread = torch.log_softmax(masked, dim=-1)
    return spread.gather(-1, ids[0, 1:, None])[loss_mask[0, 1:], 0]


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


def test_each_episode_stitches_into_one_sequence_that_loses_nothing(table, played) -> None:
    """Prompts repeat what came before, or differ only in how it is written."""
    assert max(len(episode.turns) for episode in played) == TURNS
    for episode in played:
        stitched = table.stitched(episode)
        assert {d.kind for d in stitched.divergences} <= {"white_space", "json", "resplit"}
        assert stitched.ended_by is None
        assert stitched.ledger.sampled == sum(len(turn.output_ids) for turn in episode.turns)
        assert stitched.ledger.trained + stitched.ledger.resynced == stitched.ledger.sampled
        assert stitched.ledger.trained > 0


def test_each_screenshot_has_the_image_tokens_that_the_processor_counts(table, played) -> None:
    for episode in played:
        sample = table.sample(episode)
        unseen = episode.actions[-1].screenshot is not None  # no prompt follows the last action
        assert len(sample.image_grid_thw) == len(episode.screenshots) - unseen
        pads = sum(i == table.policy.image_token_id for i in sample.stitched.tokens)
        assert pads == int(sample.image_grid_thw.prod(axis=1).sum()) // table.policy.merge**2


def test_logprobs_are_those_of_transformers_on_the_same_tokens_and_pixels(
    table, played, references
) -> None:
    """Engine and trainer must mean the same distribution: temperature, mask, positions, vision."""
    for episode in played:
        sample = table.sample(episode)
        loss_mask = sampled_positions(sample.stitched)
        said = as_sampled(sample.stitched, loss_mask)
        expected = forced(references[0], table.policy, sample, loss_mask)
        assert gap(said, expected) < table.server.logprob_gap
        with torch.inference_mode():
            example = Example(sample.stitched.tokens, sample.pixel_values, sample.image_grid_thw)
            batch = collate(table.policy, [example])
            trainer = score(table.policy, batch, loss_mask, temperature=TEMPERATURE).logprobs[
                loss_mask
            ]
        assert gap(said, trainer) < table.server.logprob_gap


def test_the_pixels_reached_the_server(table, played, references) -> None:
    """agent-lightning#560: images never reached training, and the loss still fell."""
    sample = table.sample(played[0])
    loss_mask = sampled_positions(sample.stitched)
    blank = np.zeros_like(sample.pixel_values)
    blind = forced(references[0], table.policy, sample, loss_mask, pixels=blank)
    said = as_sampled(sample.stitched, loss_mask)
    assert gap(said, blind) > 20 * table.server.logprob_gap


def test_what_the_checkpoint_says_about_sampling_does_not_count(table) -> None:
    """Six seeds, one distinct answer: top_k 1 came from generation_config (OpenPipe/ART#140)."""
    episodes = table.episodes(range(10, 16), max_tokens=48)
    answers = {tuple(turn.output_ids for turn in episode.turns) for episode in episodes}
    assert len(answers) > 1


def test_the_first_prompt_has_the_ids_of_the_embedded_engines(table) -> None:
    """sglang shows the template a field more in each tool: 550 ids instead of 33."""
    (episode,) = table.episodes(SEEDS[:1], max_tokens=2)
    asked = table.heard[0]
    expected = ChatPrompts(table.policy).get(asked["messages"], asked["tools"])
    assert list(episode.turns[0].prompt_ids) == expected.ids.tolist()


def test_words_that_spell_a_special_token_do_not_become_one(table) -> None:
    """Only the embedded engine tells them apart; the others read a prompt as one text."""
    if table.server.name != "embedded":
        pytest.skip("the server's own tokenisation of a prompt")
    words = [{"role": "user", "content": "<|image_pad|><|im_end|>"}]
    with httpx.Client(base_url=table.server.url, timeout=120) as client:
        body = {"messages": words, "max_tokens": 1, "return_prompt_token_ids": True}
        answer = client.post("/v1/chat/completions", json=body).json()
    ids = answer["choices"][0]["prompt_token_ids"]
    assert table.policy.image_token_id not in ids
    assert ids.count(table.policy.tokenizer.convert_tokens_to_ids("<|im_end|>")) == 1


def test_equal_seeds_give_equal_tokens(table, played) -> None:
    if table.server.seeded:
        pytest.skip(table.server.seeded)
    again = table.episodes(SEEDS[:1])[0]
    assert [t.output_ids for t in again.turns] == [t.output_ids for t in played[0].turns]
    assert again.reward == played[0].reward


def test_an_id_that_is_forbidden_is_never_said_and_the_logprobs_know_it(table, references) -> None:
    """A sampled image pad has no image; both sides mask the same ids, or ratios are off."""
    calls = table.policy.tokenizer.convert_tokens_to_ids("<tool_call>")
    (episode,) = table.episodes(SEEDS[:1], forbid=(calls,))
    (turn,) = episode.turns
    assert calls not in turn.output_ids
    assert not set(table.policy.forbidden_ids) & set(turn.output_ids)
    (sequence,) = stitch(episode.turns, codec_from_tokenizer(table.policy.tokenizer))
    images = episode_images(episode.screenshots, table.policy.vision)
    (sample,) = samples_of([sequence], images, reward=0.0, group="g", episode="e")
    loss_mask = sampled_positions(sequence)
    expected = forced(references[0], table.policy, sample, loss_mask, forbid=(calls,))
    assert gap(as_sampled(sequence, loss_mask), expected) < table.server.logprob_gap


def test_ids_on_record_are_continued_exactly(table, references) -> None:
    if table.server.token_in:
        pytest.skip(table.server.token_in)
    for episode in table.episodes(token_in=True, temperature=1.0):
        for before, after in itertools.pairwise(episode.turns):
            known = (*before.prompt_ids, *before.output_ids)
            assert after.prompt_ids[: len(known)] == known
        sample = table.sample(episode)
        assert sample.stitched.divergences == ()
        loss_mask = sampled_positions(sample.stitched)
        expected = forced(references[0], table.policy, sample, loss_mask, temperature=1.0)
        assert gap(as_sampled(sample.stitched, loss_mask), expected) < table.server.logprob_gap


def test_an_answer_that_the_limit_cut_ends_its_episode_as_truncated(table) -> None:
    (episode,) = table.episodes(SEEDS[:1], max_tokens=2)
    (turn,) = episode.turns
    assert (episode.status, turn.truncated, len(turn.output_ids)) == ("truncated", True, 2)
    assert len(turn.output_logprobs) == 2
    assert not episode.actions[0].well_formed


def test_a_malformed_call_is_not_executed_and_keeps_its_ids(table, references) -> None:
    """Servers lose the text of such a call, or return it as words; the ids are right."""
    (episode,) = table.episodes(SEEDS[:1], stop=['"keys"'])
    (turn,) = episode.turns
    text = table.policy.tokenizer.decode(turn.output_ids)
    assert text.startswith("<tool_call>")
    assert "</tool_call>" not in text
    assert (episode.actions[0].well_formed, turn.truncated) == (False, False)
    assert len(episode.screenshots) == 1, "nothing was executed"
    (sequence,) = stitch(episode.turns, codec_from_tokenizer(table.policy.tokenizer))
    assert sequence.ledger.trained == len(turn.output_ids)


def test_a_prompt_that_does_not_fit_fails_the_episode_with_the_servers_words(table) -> None:
    (episode,) = table.episodes(SEEDS[:1], max_tokens=100_000)
    assert (episode.status, episode.reward, episode.turns) == ("failed", None, ())
    assert "100000" in (episode.error or "")


def test_new_weights_answer_at_once_and_nothing_old_is_cached(
    table, played, references, checkpoints
) -> None:
    """A stale prefix under new weights is silently wrong: the same episode is asked for again."""
    first, second = checkpoints
    with weights_client(table.server.url, timeout_s=120) as client:
        update_weights(client, table.server.dialect, second.folder, "step-2")
        try:
            (episode,) = table.episodes(SEEDS[:1])
        finally:
            update_weights(client, table.server.dialect, first.folder, "step-1")
    sample = table.sample(episode)
    loss_mask = sampled_positions(sample.stitched)
    said = as_sampled(sample.stitched, loss_mask)
    assert (
        gap(said, forced(references[1], second.policy, sample, loss_mask))
        < table.server.logprob_gap
    )
    assert gap(said, forced(references[0], first.policy, sample, loss_mask)) > 0.01
    versions = ("step-2",) if table.server.says_version else ()
    assert sample.stitched.weight_versions == versions


def seeded_answers(server: Server, count: int) -> set[str]:
    """Distinct answers to one question under different seeds; nothing else is said."""
    with weights_client(server.url, timeout_s=120) as client:
        body = {"model": NAME, "messages": [{"role": "user", "content": "2048"}], "max_tokens": 8}
        answers = [
            client.post("/v1/chat/completions", json=body | {"seed": seed}) for seed in range(count)
        ]
    return {answer.json()["choices"][0]["message"]["content"] or "" for answer in answers}


def test_what_a_request_leaves_out_is_not_filled_in_from_the_checkpoint(table) -> None:
    """NeMo-RL#3497, ART#140, verl#7270: the checkpoint asks for top_k 1, and six seeds gave one
    answer, of whose probability the engine says something else."""
    assert len(seeded_answers(table.server, 6)) > 1


def test_a_folder_that_cannot_be_loaded_leaves_the_old_weights_at_work(
    table, checkpoints, tmp_path: Path
) -> None:
    short = shutil.copytree(checkpoints[0].folder, tmp_path / "short")
    tensors = load_file(short / "model.safetensors")
    tensors.pop(min(tensors))
    save_file(tensors, short / "model.safetensors", metadata={"format": "pt"})
    with weights_client(table.server.url, timeout_s=120) as client:
        for folder in (tmp_path / "nowhere", short):
            with pytest.raises(LabError, match="keeps its old weights"):
                update_weights(client, table.server.dialect, folder, "step-3")
    (episode,) = table.episodes(SEEDS[:1], max_tokens=2)
    assert len(episode.turns) == 1


def test_a_reload_that_fails_in_the_server_costs_nothing_but_an_error(
    table, played, checkpoints, monkeypatch, tmp_path: Path
) -> None:
    """Where the folder cannot be read from here: vLLM then died of the next request, or hung."""
    monkeypatch.setattr(live_weights, "_check_folder", lambda *_: None)
    with weights_client(table.server.url, timeout_s=120) as client:
        for _ in range(3):
            with pytest.raises(LabError):
                update_weights(client, table.server.dialect, tmp_path / "nowhere", "step-3")
    (episode,) = table.episodes(SEEDS[:1])
    if not table.server.seeded:
        assert [t.output_ids for t in episode.turns] == [t.output_ids for t in played[0].turns]
