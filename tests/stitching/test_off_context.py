"""What stands after a changed place is known to: no other token may disagree with its context.

The log-probability of a generated token is a hash of all ids in front of it and of itself, as with
a real network: a change anywhere in front changes it. So what `off_context` says can be checked
token by token, without a model.
"""

import zlib
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.stitching.stitch import stitch
from cua_lab.stitching.stitched import Stitched
from cua_lab.stitching.turn import Turn, pack
from tests.stitching.codecs import CALL, CALLED, IM_END, PROMPT, SCAFFOLD, encode, qwen
from tests.stitching.generated import END, HEAD, KITS
from tests.stitching.generated import SCAFFOLD as SEEN

kits = pytest.mark.parametrize("kit", sorted(KITS))
BEFORE = ("", "\n", "\n\n", " ", "\n\n\n", "Ok\n\n", "Ok ", "Ok", "Ok.\n\n\n", "\nOk\n")
AFTER = ("", "\n", "\n\n", " ", " \n")
NUMBERS = (("1", "1"), ("1.0", "1"), ("100", "1e2"), ("7", "7.0"))
SPACES = (("", " "), (" ", " "), ("\n ", " "), (" ", ""))


def logprob(before: Sequence[int], token: int) -> float:
    return -1.0 - zlib.crc32(pack((*before, token))) / 2**32


def said(prompt: Sequence[int], output: Sequence[int]) -> Turn:
    """A turn whose log-probabilities are those of its own context."""
    values = (logprob((*prompt, *output[:k]), token) for k, token in enumerate(output))
    return Turn(tuple(prompt), tuple(output), tuple(values))


def in_another_context(stitched: Stitched) -> set[int]:
    """Trained tokens whose log-probability is not that of the ids in front of them."""
    start = stitched.response_start
    return {
        at
        for at, (mask, value) in enumerate(
            zip(stitched.loss_mask, stitched.logprobs, strict=True), start
        )
        if mask and value != logprob(stitched.tokens[:at], stitched.tokens[at])
    }


def off_context(stitched: Stitched) -> set[int]:
    mask, start = stitched.loss_mask, stitched.response_start
    spans = (range(a, b) for a, b in stitched.off_context)
    return {at for span in spans for at in span if mask[at - start]}


def call(number: str, space: str) -> str:
    body = f'{{"name":{space}"computer","arguments":{space}{{"x":{space}{number}}}}}'
    return f"<tool_call>\n{body}\n</tool_call>"


def episode(random: Random, kit: str) -> list[Turn]:
    """A server that strips blanks around calls and writes numbers and JSON its own way, sooner or
    later: an answer is first shown as it was said, or rendered, and rendered from then on."""
    _, encode_kit = KITS[kit]
    turns: list[Turn] = []
    shown: list[tuple[tuple[int, ...], tuple[int, ...], int]] = []  # said, rendered, from turn
    for turn in range(random.randint(2, 5)):
        prompt = encode_kit(HEAD)
        for emitted, rendered, since in shown:
            prompt += (rendered if turn >= since else emitted) + encode_kit(SEEN)
        lead, trail = random.choice(BEFORE), random.choice(AFTER)
        (number, again), (space, spaced) = random.choice(NUMBERS), random.choice(SPACES)
        output = encode_kit(f"{lead}{call(number, space)}{trail}{END}")
        word = f"{lead.strip()}\n" if lead.strip() else ""
        exact = random.random() < 0.2
        rendered = output if exact else encode_kit(f"{word}{call(again, spaced)}{END}")
        turns.append(said(prompt, output))
        shown.append((output, rendered, turn + random.choice((1, 1, 1, 2))))
    return turns


@kits
@given(seed=st.integers(0, 2**32))
def test_every_token_after_a_change_is_off_context_and_no_other(kit: str, seed: int) -> None:
    codec, _ = KITS[kit]
    (stitched,) = stitch(episode(Random(seed), kit), codec)
    assert stitched.ended_by is None
    assert in_another_context(stitched) == off_context(stitched)


@kits
def test_a_study_of_many_episodes_finds_no_token_off_its_context_unflagged(kit: str) -> None:
    """With `<` in `off_context`, 37 of 60 episodes of Qwen ids had tokens that were not flagged."""
    codec, _ = KITS[kit]
    found = [stitch(episode(Random(seed), kit), codec)[0] for seed in range(60)]
    assert sum(bool(off_context(stitched)) for stitched in found) > 30, "the study changes contexts"
    assert not any(in_another_context(stitched) - off_context(stitched) for stitched in found)


def stitched_as(emitted: Sequence[int], rendered: Sequence[int]) -> Stitched:
    head, last = encode(PROMPT), encode("Done.<|im_end|>")
    turns = [said(head, emitted), said((*head, *rendered, *encode(SCAFFOLD)), last)]
    return stitch(turns, qwen())[0]


@pytest.mark.parametrize(
    ("emitted", "rendered"),
    [
        ("\n<tool_call>go</tool_call>", "<tool_call>go</tool_call>"),
        ("Ok\n\n<tool_call>go</tool_call>", "Ok<tool_call>go</tool_call>"),
        ("<tool_call>go</tool_call>\n", "<tool_call>go</tool_call>"),
    ],
)
def test_what_follows_ids_that_a_template_drops_is_off_context(emitted: str, rendered: str) -> None:
    """A deletion leaves nothing that was adopted; what follows begins where it was."""
    stitched = stitched_as(encode(emitted + "<|im_end|>"), encode(rendered + "<|im_end|>"))
    (divergence,) = stitched.divergences
    assert divergence.rendered_ids == ()
    (start, end), *_ = stitched.off_context
    assert start == divergence.index
    assert stitched.tokens[end - 1] == IM_END
    assert in_another_context(stitched) == off_context(stitched)


def test_a_scaffold_newline_that_a_sampled_blank_takes_over_carries_no_loss() -> None:
    """The prompt's newline (198) and the policy's two (271) become one 271, sampled by nobody."""
    head = encode(PROMPT)
    assert head[-1] == 198
    prompt = (*head[:-1], 271, CALL, 3346, CALLED, IM_END, *encode(SCAFFOLD))
    turns = [said(head, (271, CALL, 3346, CALLED, IM_END)), said(prompt, encode("Done.<|im_end|>"))]
    (stitched,) = stitch(turns, qwen())
    at = len(head) - 1
    assert stitched.tokens[at] == 271
    assert stitched.response_start == at
    assert stitched.loss_mask[:5] == (0, 1, 1, 1, 1)
    assert stitched.ledger.resynced == 1
    assert in_another_context(stitched) == off_context(stitched)


def test_an_older_divergence_moves_with_changes_on_both_sides_of_it() -> None:
    """Three prompts: the second changes the middle of an answer, the third what is before it and
    behind it. The place on record is that of the ids on record."""
    head, end = encode(PROMPT), (IM_END, *encode(SCAFFOLD))
    one, two, three = "A  b", "C  d", "E  f"
    first = encode(f"{one}, {two}, {three}")
    middle = encode(f"{one}, C d, {three}")
    last = encode("A b, C d, E f")
    turns = [
        said(head, (*first, IM_END)),
        said((*head, *middle, *end), encode("Done.<|im_end|>")),
    ]
    tail = (*turns[1].output_ids, *encode(SCAFFOLD))
    turns.append(said((*head, *last, *end, *tail), encode("Done.<|im_end|>")))
    (stitched,) = stitch(turns, qwen())
    assert len(stitched.divergences) == 3
    for divergence in stitched.divergences:
        stop = divergence.index + len(divergence.rendered_ids)
        assert stitched.tokens[divergence.index : stop] == divergence.rendered_ids
    assert in_another_context(stitched) == off_context(stitched)
