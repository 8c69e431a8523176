"""GRPO in one file: sample a group from the same start, compare its members, push.

    G start states ──▶ M answers each ──▶ rewards (G, M) ──▶ advantages ──▶ clipped loss ──▶ AdamW

An episode is one click on a red button, its reward how near the click came.
The real one, `cua_lab.training.trainer`, adds
- the proof before each step that engine and trainer agree on every token that was sampled,
- whole episodes over many turns, through HUD and RFB (`cua_lab.play.worker`),
- failed episodes, which enter no statistic (`cua_lab.training.advantages`),
- micro-batches (`cua_lab.training.batching`), KL, GSPO, importance sampling
  (`cua_lab.training.losses`), checkpoints (`cua_lab.training.checkpoint`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cua_lab.demonstrators.demos import ClickPlayer, corpus_of
from cua_lab.lessons.loops.click_task import FRESH, click_player, grade
from cua_lab.lessons.loops.sft import sft
from cua_lab.policy.model import SHAPES
from cua_lab.policy.plain_sampling import sample
from cua_lab.policy.policy import Policy, build_policy
from cua_lab.policy.scoring import Batch, Example, collate, score
from cua_lab.training.warmup import make_prompt


@dataclass(frozen=True, slots=True, eq=False)
class Rollouts:
    """What one step samples; B = G * M rows."""

    batch: Batch  # ids (B, T), prompt and answer, and the screenshots
    mask: Tensor  # (B, T) bool: tokens that the policy sampled
    old: Tensor  # (B, T) their log-probabilities before the step's first update
    rewards: Tensor  # (G, M)


@dataclass(slots=True)
class State:
    step: int = 0  # every start and every draw is a function of it


class Grpo:
    """The loop; each method is a line of the algorithm, and `plus_*.py` replace one each."""

    updates: ClassVar[int] = 1  # of the weights on one batch; with 1 the ratio below is always 1
    clip_low: ClassVar[float] = 0.2
    clip_high: ClassVar[float] = 0.2

    def __init__(
        self, policy: Policy, player: ClickPlayer, *, G: int = 8, M: int = 8, lr: float = 2e-3
    ) -> None:
        self.policy, self.player, self.G, self.M = policy, player, G, M
        self.optimizer = torch.optim.AdamW(policy.model.parameters(), lr=lr, weight_decay=0.0)
        self.state = State()

    def roll_out(self) -> Rollouts:
        """Answers to G screens that no step has seen, M to each."""
        first = FRESH + self.state.step * self.G
        starts = [index for index in range(first, first + self.G) for _ in range(self.M)]
        prompts = [make_prompt(self.policy, self.player(index)) for index in starts]
        answers = sample(self.policy, prompts, max_tokens=32, seed=self.state.step)
        texts = self.policy.tokenizer.batch_decode(answers)
        rewards = [grade(self.player, i, text) for i, text in zip(starts, texts, strict=True)]
        both = list(zip(prompts, answers, strict=True))
        examples = [Example([*p.ids, *answer], p.pixels, p.grids) for p, answer in both]
        batch = collate(self.policy, examples)
        mask = torch.zeros_like(batch.ids, dtype=torch.bool)  # (B, T)
        for row, (prompt, answer) in enumerate(both):
            mask[row, len(prompt.ids) : len(prompt.ids) + len(answer)] = True
        with torch.no_grad():
            old = score(self.policy, batch, mask).logprobs  # (B, T), NaN outside of the mask
        return Rollouts(batch, mask, old, torch.tensor(rewards).view(self.G, self.M))

    def advantages(self, rewards: Tensor) -> Tensor:  # (G, M) -> (G, M)
        """How much better than its group: the group's mean is the baseline."""
        std, mean = torch.std_mean(rewards, dim=1, keepdim=True, correction=0)  # (G, 1)
        return (rewards - mean) / (std + 1e-6)

    def loss(self, logprobs: Tensor, rollouts: Rollouts) -> Tensor:  # (B, T) -> ()
        """The clipped surrogate, its mean over the policy's tokens."""
        ratio = (logprobs - rollouts.old)[rollouts.mask].exp()  # (N,)
        advantage = self.advantages(rollouts.rewards).view(-1, 1).expand_as(rollouts.mask)
        signal = advantage[rollouts.mask]  # (N,)
        clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        return -torch.minimum(ratio * signal, clipped * signal).mean()

    def step(self) -> float:
        """One GRPO step; the mean reward of what was sampled."""
        rollouts = self.roll_out()
        for _ in range(self.updates):
            logprobs = score(self.policy, rollouts.batch, rollouts.mask).logprobs  # (B, T)
            self.optimizer.zero_grad()
            self.loss(logprobs, rollouts).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), 1.0)
            self.optimizer.step()
        self.state.step += 1
        return float(rollouts.rewards.mean())


def main(loop: type[Grpo], player: ClickPlayer) -> None:
    """Warm a small policy up, then let the loop improve it: 12 CPU-seconds."""
    policy = build_policy(SHAPES["smoke"], corpus_of((player,)), seed=0)
    for step, loss in enumerate(sft(policy, player, steps=100), start=1):
        if step % 20 == 0:
            print(f"warm-up {step:3}   loss {loss:.3f}", flush=True)
    grpo = loop(policy, player)
    while grpo.state.step < 30:
        reward = grpo.step()
        bar = "#" * round(40 * reward)
        print(f"step {grpo.state.step:3}   reward {reward:.3f}  {bar}", flush=True)


if __name__ == "__main__":
    main(Grpo, click_player())
