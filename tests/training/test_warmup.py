"""The warm-up on demonstrations."""

import numpy as np
import pytest
import torch

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.schema import tool_schema
from cua_lab.demonstrators.demos import (
    ClickPlayer,
    GamePlayer,
    PromptContext,
    ReadingPlayer,
    corpus_of,
)
from cua_lab.policy.policy import Policy, build_policy
from cua_lab.policy.scoring import Example
from cua_lab.policy.shape import Shape
from cua_lab.policy.template import encode
from cua_lab.recipes.settings import SftSettings
from cua_lab.training.probe import probe, read_call
from cua_lab.training.warmup import (
    SftExample,
    make_example,
    make_optimizers,
    make_prompt,
    sft,
    sft_loss,
)
from tests.support_calls import call_text

TOOL = tool_schema(ToolConfig(coordinate_space="0-1000", max_keys_per_call=20), (96, 96))
SCENE = PromptContext("Use the screen.", (TOOL,))
CLICK = ClickPlayer(SCENE, width=96, height=96)
GAME = GamePlayer(SCENE, "Reach a high score.", turns=2, width=96, height=96)
TINY = Shape(hidden=32, layers=2, vision_hidden=32, mlp_ratio=2, grid_side=6)
CORPUS = corpus_of((CLICK, GAME), count=40)


def new_policy(seed: int = 0) -> Policy:
    return build_policy(TINY, CORPUS, seed=seed)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return new_policy()


def test_exactly_the_assistants_tokens_carry_loss_and_its_end_with_them(policy: Policy) -> None:
    """Without the end token answers never end (verl#3562, slime#514)."""
    demo = GAME(1)
    item = make_example(policy, demo)
    ids = np.asarray(item.example.ids)
    answers = [
        call_text("computer", message["tool_calls"][0]["function"]["arguments"]) + "<|im_end|>"
        for message in demo.messages
        if message["role"] == "assistant"
    ]
    assert policy.tokenizer.decode(ids[item.loss_mask]) == "".join(answers)


def test_a_thought_carries_loss_like_the_call_behind_it(policy: Policy) -> None:
    demo = ReadingPlayer(SCENE, "Read.", width=96, height=96, think="pair")(1)
    item = make_example(policy, demo)
    answers = [
        f"{message['content']}\n"
        + call_text("computer", message["tool_calls"][0]["function"]["arguments"])
        + "<|im_end|>"
        for message in demo.messages
        if message["role"] == "assistant"
    ]
    said = policy.tokenizer.decode(np.asarray(item.example.ids)[item.loss_mask])
    assert said == "".join(answers)
    prompt = make_prompt(policy, demo, 1)  # with the first thought in its history
    assert list(item.example.ids[: len(prompt.ids)]) == list(prompt.ids)


def test_muon_moves_the_hidden_matrices_and_adamw_all_the_rest(policy: Policy) -> None:
    adamw, muon = make_optimizers(policy, SftSettings(optimizer="muon"))
    hidden = {id(p) for group in muon.param_groups for p in group["params"]}
    others = {id(p) for group in adamw.param_groups for p in group["params"]}
    names = {name: id(p) for name, p in policy.model.named_parameters()}
    assert not hidden & others
    assert hidden | others == set(names.values())
    for name, parameter in names.items():
        by_muon = any(part in name for part in ("self_attn.", "attn.", "mlp.", "linear_fc"))
        assert (parameter in hidden) == (by_muon and name.endswith("weight") and "norm" not in name)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_each_optimizer_warms_up_to_its_own_rate_and_repeats_its_bits(optimizer) -> None:
    config = SftSettings(steps=4, batch=4, demonstrations=16, warmup_steps=2, cooldown_steps=1,
                       optimizer=optimizer)  # fmt: skip
    runs = [[m.loss for m in sft(new_policy(1), CLICK, config, progress=False)] for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0][-1] < runs[0][0]


def test_a_prompt_and_the_answer_are_the_beginning_of_the_example(policy: Policy) -> None:
    """Training and rollout see the same ids, or SFT teaches another format."""
    demo = GAME(2)
    whole = make_example(policy, demo)
    for turn in (0, 1):
        prompt = make_prompt(policy, demo, turn)
        assert list(whole.example.ids[: len(prompt.ids)]) == list(prompt.ids)
        assert whole.loss_mask[len(prompt.ids)]
        assert len(prompt.grids) == turn + 1
    call = demo.messages[2]["tool_calls"][0]["function"]["arguments"]
    answer = encode(policy.tokenizer, call_text("computer", call) + "<|im_end|>")
    start = len(make_prompt(policy, demo).ids)
    assert list(whole.example.ids[start : start + len(answer)]) == answer


def test_a_demo_without_an_answer_is_refused() -> None:
    example = Example([1, 2], np.zeros((0, 0)), np.zeros((0, 3)))
    with pytest.raises(ValueError, match="none of 2 tokens carries loss"):
        SftExample(example, np.zeros(2, bool))
    with pytest.raises(ValueError, match="loss_mask has 1 entries but there are 2 tokens"):
        SftExample(example, np.ones(1, bool))


def test_values_of_masked_tokens_never_matter(policy: Policy) -> None:
    item = make_example(policy, CLICK(0))
    last = int(np.flatnonzero(item.loss_mask)[-1])
    longer = SftExample(
        Example([*item.example.ids, 5, 6], item.example.pixels, item.example.grids),
        np.append(item.loss_mask, [False, False]),
    )
    assert last < len(item.example.ids)
    torch.testing.assert_close(sft_loss(policy, [item])[0], sft_loss(policy, [longer])[0])


def test_the_loss_is_a_mean_over_tokens(policy: Policy) -> None:
    items = [make_example(policy, GAME(i)) for i in range(3)]
    together, tokens = sft_loss(policy, items)
    parts = [sft_loss(policy, [item]) for item in items]
    assert tokens == sum(count for _, count in parts)
    mean = sum(loss * count for loss, count in parts) / tokens
    torch.testing.assert_close(together, mean)


def test_the_same_seed_gives_the_same_weights_and_metrics() -> None:
    config = SftSettings(steps=3, batch=4, demonstrations=6)
    runs = []
    for _ in range(2):
        policy = new_policy()
        history = sft(policy, CLICK, config, progress=False)
        runs.append(([m.loss for m in history], policy.model.state_dict()))
    assert runs[0][0] == runs[1][0]
    assert all(torch.equal(runs[0][1][name], runs[1][1][name]) for name in runs[0][1])


def test_a_short_warm_up_teaches_the_form_of_a_call() -> None:
    policy = new_policy()
    config = SftSettings(steps=40, batch=8, lr=1e-2, warmup_steps=5)
    history = sft(policy, CLICK, config, progress=False)
    assert history[-1].loss < 0.4 * history[0].loss
    assert probe(policy, CLICK, count=8, temperature=0.0, max_tokens=24).valid == 1.0


def test_it_cools_down_and_stops_once_the_check_is_content() -> None:
    """Half inside: a GRPO group with successes AND failures has a gradient."""
    seen = []
    history = sft(
        new_policy(),
        CLICK,
        SftSettings(steps=30, batch=2, stop_at=0.5, check_every=2, cooldown_steps=3),
        check=lambda step: step / 10,
        on_step=seen.append,
        progress=False,
    )
    assert [m.check for m in history] == [None, 0.2, None, 0.4, None, 0.6, None, 0.8, None]
    assert seen == history


def test_the_rate_goes_up_stays_and_comes_down() -> None:
    config = SftSettings(steps=7, batch=2, lr=1e-3, warmup_steps=2, cooldown_steps=3)
    rates = [m.lr for m in sft(new_policy(), CLICK, config, progress=False)]
    assert rates == pytest.approx([5e-4, 1e-3, 1e-3, 1e-3, 7.5e-4, 5e-4, 2.5e-4])


@pytest.mark.parametrize(
    ("arguments", "good"),
    [
        ('{"action": "click", "x": 435, "y": 210}', True),
        ('{"action": "click", "x": 1001, "y": 210}', False),
        ('{"action": "click", "x": 035, "y": 210}', False),
        ('{"action": "press", "keys": ["left"]}', True),
        ('{"action": "press", "keys": []}', False),
    ],
)
def test_an_answer_counts_as_valid_where_the_tool_would_take_it(arguments, good) -> None:
    text = f'<tool_call>\n{{"name": "computer", "arguments": {arguments}}}\n</tool_call><|im_end|>'
    assert (read_call(text) is not None) == good
    assert read_call(text.removesuffix("<|im_end|>")) is None


def test_a_probe_can_deal_the_screens_to_other_tasks(policy: Policy) -> None:
    own = probe(policy, CLICK, count=4)
    assert own == probe(policy, CLICK, count=4)
    assert probe(policy, CLICK, count=4, screens="shuffled").answers == 4
    assert probe(policy, CLICK, count=4, screens="blank").answers == 4
