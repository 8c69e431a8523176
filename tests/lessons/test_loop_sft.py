"""The loop to read and the real warm-up make the same examples, losses and weights."""

from collections.abc import Callable

import torch

from cua_lab.demonstrators.demos import ClickPlayer, Demo, GamePlayer, PromptContext
from cua_lab.desktop.apps import Game2048
from cua_lab.lessons.loops.sft import IGNORE, lesson_of, sft, sft_loss
from cua_lab.policy.policy import Policy
from cua_lab.recipes.settings import SftSettings
from cua_lab.training import warmup as real


def demos(player: ClickPlayer) -> list[Demo]:
    """One turn, and three turns with four screenshots' worth of history."""
    prompt = PromptContext(system="Use the screen.", tools=player.prompt.tools)
    game = GamePlayer(prompt, "Play.", turns=3, width=96, height=96)
    assert Game2048(96, 96).size == (96, 96)
    return [player(0), player(1), game(0), game(1)]


def test_the_ids_the_pixels_and_the_mask_are_those_of_the_real_one(
    fresh: Callable[[], Policy], player: ClickPlayer
) -> None:
    policy = fresh()
    for demo in demos(player):
        lesson, example = lesson_of(policy, demo), real.make_example(policy, demo)
        assert list(lesson.example.ids) == list(example.example.ids)
        assert (lesson.example.pixels == example.example.pixels).all()
        assert (lesson.example.grids == example.example.grids).all()
        assert [target != IGNORE for target in lesson.targets] == example.loss_mask.tolist()
        said = [i for i, m in zip(example.example.ids, example.loss_mask, strict=True) if m]
        assert [target for target in lesson.targets if target != IGNORE] == said


def test_the_loss_is_that_of_the_real_one(fresh: Callable[[], Policy], player: ClickPlayer) -> None:
    policy = fresh()
    batch = demos(player)
    loss = sft_loss(policy, [lesson_of(policy, demo) for demo in batch])
    expected, tokens = real.sft_loss(policy, [real.make_example(policy, demo) for demo in batch])
    assert tokens > 40
    assert abs(float(loss.detach()) - float(expected.detach())) < 1e-6


def test_five_updates_give_the_weights_of_the_real_one(
    fresh: Callable[[], Policy], player: ClickPlayer
) -> None:
    """The same optimizer: its betas, its clip, no decay."""
    one, other = fresh(), fresh()
    drawn: list[int] = []

    def noted(index: int) -> Demo:
        drawn.append(index)
        return player(index)

    losses = list(sft(one, noted, steps=5, batch=4))
    settings = SftSettings(lr=3e-3)
    optimizers = real.make_optimizers(other, settings)
    for step in range(5):
        batch = [real.make_example(other, player(i)) for i in drawn[4 * step : 4 * step + 4]]
        metrics = real.sft_step(other, optimizers, batch, settings, step + 1)
        assert abs(metrics.loss - losses[step]) < 1e-5
    for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def test_it_learns(fresh: Callable[[], Policy], player: ClickPlayer) -> None:
    losses = list(sft(fresh(), player, steps=12, batch=8))
    assert losses[-1] < losses[0] - 2
