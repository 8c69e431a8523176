"""Stitching: sampled ids are kept, nothing is silently re-encoded, every loss is counted."""

import math

import pytest

from cua_lab.serving.dialects import read_choice
from cua_lab.stitching.codec import TableCodec
from cua_lab.stitching.ledger import TokenLedger, total
from cua_lab.stitching.stitch import stitch
from cua_lab.stitching.turn import Turn, WeightSpan
from tests.recordings import SGLANG_BF16, VLLM, recording
from tests.stitching.codecs import (
    CALL,
    IM_END,
    IM_START,
    NEWLINE,
    PAD,
    PROMPT,
    SCAFFOLD,
    SEE,
    SEEN,
    encode,
    qwen,
    rerendered,
    turn,
)

HEAD = encode(PROMPT)
PLAIN = TableCodec({i: bytes([i]) for i in range(100)}, {})
"""One byte an id and no control ids."""


def only(turns, **options):
    (stitched,) = stitch(turns, qwen(), **options)
    return stitched


def kept(stitched):
    """(id, log-probability) of each token that carries loss."""
    start = stitched.response_start
    rows = zip(stitched.tokens[start:], stitched.loss_mask, stitched.logprobs, strict=True)
    return [(token, logprob) for token, mask, logprob in rows if mask]


def test_one_turn_is_its_prompt_and_its_output():
    output = encode("Click it.<|im_end|>")
    stitched = only([turn(HEAD, output)])
    assert stitched.tokens == HEAD + output
    assert stitched.response_start == len(HEAD)
    assert stitched.loss_mask == (1,) * len(output)


def test_the_first_and_the_stop_token_carry_loss():
    """verl#3562, slime#514 (the stop token), OpenRLHF#973 (the first one)."""
    output = encode("Click it.<|im_end|>")
    stitched = only(rerendered(output, output))
    ids = [token for token, _ in kept(stitched)]
    assert ids[: len(output)] == list(output)
    assert IM_END in ids


def test_exactly_the_sampled_tokens_carry_loss():
    output = encode("Click it.<|im_end|>")
    turns = rerendered(output, output)
    stitched = only(turns)
    assert sum(stitched.loss_mask) == sum(len(t.output_ids) for t in turns)
    assert [lp for _, lp in kept(stitched)] == [lp for t in turns for lp in t.output_logprobs]


def test_the_newline_after_the_stop_token_is_the_servers_and_has_mask_0():
    """verl#6501: rendering piece by piece loses it; verifiers#476: the delta is not trained."""
    output = encode("Click it.<|im_end|>")
    stitched = only(rerendered(output, output))
    at = stitched.tokens.index(IM_END, len(HEAD))
    assert stitched.tokens[at : at + 4] == (IM_END, NEWLINE, IM_START, 872)
    delta = at + 1 - stitched.response_start
    assert stitched.loss_mask[delta : delta + len(encode(SCAFFOLD))] == (0,) * len(encode(SCAFFOLD))


def test_two_splits_of_one_text_are_a_resplit():
    """rllm#272: [53122, 316] and [393, 30002] are both " Pantom"; trl#5224: "hello" likewise."""
    for emitted, rendered in [((53122, 316), (393, 30002)), ((383, 75, 385), (14990,))]:
        stitched = only(rerendered((*emitted, IM_END), (*rendered, IM_END)))
        (divergence,) = stitched.divergences
        assert divergence.kind == "resplit"
        assert divergence.emitted_ids == emitted
        assert divergence.rendered_ids == rendered
        assert divergence.emitted_text == divergence.rendered_text
        assert stitched.ledger.resynced == len(emitted)
        assert (IM_END, -0.5 - len(emitted)) in kept(stitched)


def test_the_blank_line_before_a_call_may_become_one_newline():
    emitted, rendered = (2612, 432, 382, CALL, IM_END), (2612, 432, 624, CALL, IM_END)
    stitched = only(rerendered(emitted, rendered))
    (divergence,) = stitched.divergences
    assert (divergence.turn, divergence.seen_in) == (0, 1)
    assert divergence.index == len(HEAD) + 2
    assert divergence.kind == "white_space"
    assert (divergence.emitted_ids, divergence.rendered_ids) == ((382,), (624,))
    assert (divergence.emitted_text, divergence.rendered_text) == (".\n\n", ".\n")
    assert stitched.tokens[len(HEAD) : len(HEAD) + 5] == rendered
    assert stitched.loss_mask[:5] == (1, 1, 0, 1, 1)
    assert math.isnan(stitched.logprobs[2])
    assert [lp for _, lp in kept(stitched)][:4] == [-0.5, -1.5, -3.5, -4.5]


@pytest.mark.parametrize(
    ("emitted", "rendered"),
    [
        ((2612, 432, 13, CALL, IM_END), (2612, 432, 624, CALL, IM_END)),
        ((271, CALL, IM_END), (CALL, IM_END)),
        ((CALL, IM_END), (NEWLINE, CALL, IM_END)),
        ((2612, 0, 1406, CALL, IM_END), (2612, 0, NEWLINE, CALL, IM_END)),
        ((2612, 2219, CALL, IM_END), (2612, 0, NEWLINE, CALL, IM_END)),
        ((2612, *[NEWLINE] * 5, CALL, IM_END), (2612, NEWLINE, CALL, IM_END)),
        ((2612, *[NEWLINE] * 50, CALL, IM_END), (2612, NEWLINE, CALL, IM_END)),
    ],
)
def test_any_white_space_around_a_call_is_benign(emitted, rendered):
    """tinker-cookbook#859: no separator without text; five newlines are the same as two."""
    stitched = only(rerendered(emitted, rendered))
    assert {d.kind for d in stitched.divergences} == {"white_space"}
    assert stitched.tokens[len(HEAD) : len(HEAD) + len(rendered)] == rendered
    assert stitched.ended_by is None


def test_compact_json_is_adopted_and_the_ids_both_share_are_still_trained():
    spaced = '{"name": "computer", "arguments": {"action": "click", "x": 10, "y": 20}}'
    emitted = encode(f"<tool_call>\n{spaced.replace(' ', '')}\n</tool_call><|im_end|>")
    rendered = encode(f"<tool_call>\n{spaced}\n</tool_call><|im_end|>")
    stitched = only(rerendered(emitted, rendered))
    assert {d.kind for d in stitched.divergences} == {"json"}
    assert stitched.tokens[len(HEAD) : len(HEAD) + len(rendered)] == rendered
    trained = [token for token, _ in kept(stitched)]
    for word in ("computer", "click", "10", "20"):
        assert set(encode(word)) <= set(trained)
    assert stitched.ledger.resynced == sum(len(d.emitted_ids) for d in stitched.divergences)


@pytest.mark.parametrize(
    ("emitted", "rendered"),
    [
        ('{"x": 1, "y": 2}', '{"y": 2, "x": 1}'),
        ('{"x": 1.0}', '{"x": 1}'),
        ('{"text": "caf\\u00e9"}', '{"text": "café"}'),
    ],
)
def test_key_order_numbers_and_escapes_are_json(emitted, rendered):
    before, after = (
        encode(f'<tool_call>\n{{"name": "computer", "arguments": {a}}}\n</tool_call><|im_end|>')
        for a in (emitted, rendered)
    )
    stitched = only(rerendered(before, after))
    assert {d.kind for d in stitched.divergences} == {"json"}


def test_a_changed_argument_ends_the_sequence():
    """ "a b" is [64, 293] and "ab" is [370]: equal without white space, and not the same."""
    quoted = [
        (*encode('<tool_call>\n{"name": "type", "arguments": {"text": "'), *ids, *encode('"}}'))
        for ids in ((64, 293), (370,))
    ]
    emitted, rendered = ((*ids, NEWLINE, 151658, IM_END) for ids in quoted)
    stitched = only(rerendered(emitted, rendered))
    (divergence,) = stitched.divergences
    assert divergence.kind == "rewrite"
    assert stitched.tokens == HEAD + emitted
    assert stitched.ended_by == "rewrite"
    assert stitched.ledger.dropped == {"after a rewrite": len(encode("Done.<|im_end|>"))}


def test_halves_of_two_characters_are_not_equal():
    """Two ids that both decode to U+FFFD."""
    codec = qwen()
    first, second = (
        next(i for i, data in codec.table.items() if data == half) for half in (b"\xc3", b"\xe2")
    )
    stitched = only(rerendered((first, IM_END), (second, IM_END)))
    assert stitched.divergences[0].kind == "rewrite"
    assert stitched.divergences[0].emitted_text != stitched.divergences[0].rendered_text


def test_a_control_token_never_stands_for_its_spelling():
    spelled = tuple(token for character in "<|im_end|>" for token in encode(character))
    stitched = only(rerendered((2612, *spelled, IM_END), (2612, IM_END, IM_END)))
    assert stitched.divergences[0].kind == "rewrite"


def test_another_stop_token_is_a_rewrite():
    stitched = only(rerendered((2612, 151643), (2612, IM_END)))
    assert stitched.divergences[0].kind == "rewrite"
    assert "<|endoftext|>" in stitched.divergences[0].explain()


def test_a_missing_stop_token_is_scaffold_where_the_template_adds_it():
    """A stop string or a tag ends an answer without `<|im_end|>`."""
    stitched = only(rerendered((2612, 432), (2612, 432, IM_END)))
    assert stitched.divergences == ()
    assert stitched.loss_mask[:3] == (1, 1, 0)


def test_a_broken_prefix_starts_another_sequence_instead_of_losing_the_rest():
    """SkyRL#1532, its own numbers."""
    prompts = [(1,), (1, 2, 3), (1, 23, 4, 5), (1, 23, 4, 5, 6, 7)]
    turns = [turn(p, (o,)) for p, o in zip(prompts, (2, 4, 6, 8), strict=True)]
    first, second = stitch(turns, PLAIN, after_rewrite="split")
    assert (first.tokens, first.loss_mask, first.response_start) == ((1, 2, 3, 4), (1, 0, 1), 1)
    assert (second.tokens, second.loss_mask) == ((1, 23, 4, 5, 6, 7, 8), (1, 0, 1))
    assert second.response_start == 4
    assert (first.first_turn, first.last_turn) == (0, 1)
    assert (second.first_turn, second.last_turn) == (2, 3)


def test_equal_length_is_not_equal_prefix():
    """minimind#850."""
    stitched = only(rerendered((2612, 432, IM_END), (2612, 419, IM_END)))
    assert stitched.ended_by == "rewrite"


def test_a_template_that_forgets_thoughts_is_a_rewrite_with_its_turn():
    """prime-rl#1334, verl#7322: the first turn that differs is named."""
    thought = encode("<think>\nhm\n</think>\n\nClick.<|im_end|>")
    answer = encode("Click.<|im_end|>")
    plain, scaffold = encode("Ok.<|im_end|>"), encode(SCAFFOLD)
    turns = [
        turn(HEAD, thought),
        turn(HEAD + thought + scaffold, plain),
        turn(HEAD + answer + scaffold + plain + scaffold, plain),
    ]
    first, second = stitch(turns, qwen(), after_rewrite="split")
    assert first.divergences[0].turn == 0
    assert first.divergences[0].seen_in == 2
    assert second.ledger.trained == len(plain)
    assert total([first.ledger, second.ledger]).sampled == len(thought) + 2 * len(plain)


def test_an_older_output_may_be_written_another_way_too():
    """A change that shows one turn late is found by the same rules, and later outputs are kept."""
    emitted, rendered = (2612, 432, 382, CALL, IM_END), (2612, 432, 13, 271, NEWLINE, CALL, IM_END)
    scaffold, last = encode(SCAFFOLD), (2612, 432, IM_END)
    turns = [
        turn(HEAD, emitted),
        turn(HEAD + emitted + scaffold, last, logprob=-20.0),
        turn(HEAD + rendered + scaffold + last + scaffold, last, logprob=-40.0),
    ]
    stitched = only(turns)
    assert stitched.tokens == turns[2].prompt_ids + last
    assert stitched.ledger.trained == 4 + 3 + 3
    assert [lp for _, lp in kept(stitched)][4:7] == [-20.0, -21.0, -22.0]
    (divergence,) = stitched.divergences
    assert (divergence.turn, divergence.seen_in) == (0, 2)


def test_text_that_nobody_sampled_must_not_change():
    output = encode("Click it.<|im_end|>")
    other = encode(PROMPT.replace("user\nClick", "user\n\nClick"))
    scaffold = encode(SCAFFOLD)
    turns = [turn(HEAD, output), turn(other + output + scaffold, output)]
    assert only(turns).divergences[0].kind == "rewrite"


def test_an_assistant_message_of_the_harness_has_mask_0():
    """miles#1024: `role == "assistant"` is not "sampled" (NeMo-RL#2176)."""
    output = encode("Click it.<|im_end|>")
    inserted = encode("\n<|im_start|>assistant\nI inserted this.<|im_end|>")
    scaffold = encode(SCAFFOLD)
    stitched = only([turn(HEAD, output), turn(HEAD + output + inserted + scaffold, output)])
    assert stitched.ledger.trained == 2 * len(output)
    at = len(output)
    assert sum(stitched.loss_mask[at : at + len(inserted + scaffold)]) == 0


def test_an_adopted_id_may_reach_back_over_the_end_of_the_first_prompt():
    """The generation prompt's newline and the output's first ones become one id."""
    emitted = (271, *encode("Ok<|im_end|>"))
    rendered = (*HEAD[:-1], 1406, *encode("Ok<|im_end|>"))
    last = encode("Ok<|im_end|>")
    stitched = only([turn(HEAD, emitted), turn(rendered + encode(SCAFFOLD), last)])
    assert stitched.response_start == len(HEAD) - 1
    assert stitched.tokens[: len(rendered)] == rendered
    assert stitched.loss_mask[:3] == (0, 1, 1)
    assert stitched.ledger.resynced == 1


def test_truncation_ends_the_stitch_whatever_the_prompt_says():
    """hud-python#480: the half call is trained, nothing after it is."""
    output = encode('<tool_call>\n{"name": "comp')
    turns = rerendered(output, (*output, IM_END), truncated=True)
    stitched = only(turns)
    assert stitched.tokens == HEAD + output
    assert stitched.ended_by == "truncated"
    assert stitched.ledger.dropped == {"after a truncated turn": len(turns[1].output_ids)}
    first, second = stitch(turns, qwen(), after_rewrite="split")
    assert first.tokens == stitched.tokens
    assert second.ledger.trained == len(turns[1].output_ids)


def test_a_malformed_call_whose_text_the_server_lost_is_a_rewrite():
    """sglang answers with empty content; the ids are right, so the turn itself is trained."""
    output = encode('<tool_call>\n{"name": "computer", x: 1}\n</tool_call><|im_end|>')
    stitched = only(rerendered(output, (IM_END,)))
    assert stitched.tokens == HEAD + output
    assert stitched.ledger.trained == len(output)
    assert "the server dropped the text" in stitched.divergences[0].explain()


def test_two_calls_in_one_turn_resync_each():
    call = '<tool_call>\n{"name": "computer", "arguments": {"x": 1}}\n</tool_call>'
    emitted = encode(f"Go.\n\n{call}{call}<|im_end|>")
    rendered = encode(f"Go.\n{call}\n{call}<|im_end|>")
    stitched = only(rerendered(emitted, rendered))
    assert [d.kind for d in stitched.divergences] == ["white_space", "white_space"]
    assert [d.index for d in stitched.divergences] == sorted(d.index for d in stitched.divergences)


def test_ids_sampled_after_adopted_ones_are_known_to_stand_in_another_context():
    """The engine scored them after what it emitted; the trainer scores them after the rendering."""
    emitted = encode("Click it.\n\n<tool_call>go</tool_call><|im_end|>")
    rendered = encode("Click it.\n<tool_call>go</tool_call><|im_end|>")
    stitched = only(rerendered(emitted, rendered))
    (start, end), *later = stitched.off_context
    assert stitched.tokens[start:end] == emitted[3:], "all that follows the adopted newline"
    assert not later, "the next turn was sampled after the rendering itself"


def test_nothing_is_off_context_where_every_prompt_extends_the_last():
    output = encode("Click it.<|im_end|>")
    assert only(rerendered(output, output)).off_context == ()


def test_an_empty_output_is_a_turn_without_sampled_tokens():
    stitched = only(rerendered((), (IM_END,)))
    assert stitched.ledger.sampled == len(encode("Done.<|im_end|>"))
    assert "policy" not in {s.role for s in stitched.segments if s.turn == 0}


def test_missing_logprobs_are_refused_or_masked_and_never_0():
    output = encode("Click it.<|im_end|>")
    without = [Turn(HEAD, output, None)]
    with pytest.raises(ValueError, match="turn 0 has 4 output ids but only 0 finite"):
        stitch(without, qwen())
    (stitched,) = stitch(without, qwen(), missing_logprobs="mask")
    assert stitched.loss_mask == (0,) * len(output)
    assert all(map(math.isnan, stitched.logprobs))
    assert stitched.ledger == TokenLedger(sampled=len(output), masked=len(output))
    one = [Turn(HEAD, output, (-1.0, math.nan, -1.0, -math.inf))]
    (stitched,) = stitch(one, qwen(), missing_logprobs="mask")
    assert stitched.loss_mask == (1, 0, 1, 0)


def test_weights_that_change_between_turns_and_within_one_are_on_record():
    output = encode("Click it.<|im_end|>")
    turns = rerendered(output, output, weight_version="step-1")
    spans = (WeightSpan("step-1", 0, 1), WeightSpan("step-2", 1, 3))
    last = turns[1]
    changed = Turn(last.prompt_ids, last.output_ids, last.output_logprobs, weight_spans=spans)
    stitched = only([turns[0], changed])
    assert stitched.weight_versions == ("step-1", "step-2")
    per_token = [s.weight_version for s in stitched.segments for _ in range(s.end - s.start)]
    assert len(per_token) == len(stitched.tokens)
    assert per_token[-3:] == ["step-1", "step-2", "step-2"]
    assert per_token[0] is None


def test_images_are_segments_of_their_own():
    picture = (SEE, *[PAD] * 6, SEEN)
    output = encode("Click it.<|im_end|>")
    prompt = (*HEAD[:2], *picture, *picture, *HEAD[2:])
    stitched = only([turn(prompt, output), turn((*prompt, *output, *picture), output)])
    images = [s for s in stitched.segments if s.role == "image"]
    assert [(s.end - s.start, s.turn) for s in images] == [(6, 0), (6, 0), (6, 1)]
    assert all(set(stitched.tokens[s.start : s.end]) == {PAD} for s in images)


def test_an_image_that_changed_its_size_is_a_rewrite():
    output = encode("Click it.<|im_end|>")
    small, large = ((*HEAD[:2], SEE, *[PAD] * n, SEEN, *HEAD[2:]) for n in (6, 7))
    stitched = only([turn(small, output), turn(large + output, output)])
    assert stitched.ended_by == "rewrite"


def test_a_shorter_prompt_is_a_rewrite():
    output = encode("Click it.<|im_end|>")
    stitched = only([turn(HEAD, output), turn(HEAD[:3], output)])
    assert stitched.ended_by == "rewrite"


def test_segments_say_who_put_each_run_there():
    emitted, rendered = (2612, 432, 382, CALL, IM_END), (2612, 432, 624, CALL, IM_END)
    stitched = only(rerendered(emitted, rendered))
    runs = [(s.role, s.end - s.start, s.turn) for s in stitched.segments]
    assert runs == [
        ("prompt", len(HEAD), 0),
        ("policy", 2, 0),
        ("resynced", 1, 0),
        ("policy", 2, 0),
        ("scaffold", len(encode(SCAFFOLD)), 1),
        ("policy", len(encode("Done.<|im_end|>")), 1),
    ]


def test_an_episode_without_turns_is_refused():
    with pytest.raises(ValueError, match="write it off"):
        stitch([], qwen())


@pytest.mark.parametrize("engine", [SGLANG_BF16, VLLM])
def test_recorded_episodes_stitch_and_account_for_every_token(engine):
    """A random model, forced to call: it spells `</tool_call>` and ends with `<|endoftext|>`."""
    exchanges = recording(engine, "h_hud_agent_wire_img")
    turns = [read_choice(exchange["response"]).turn() for exchange in exchanges]
    first, second = stitch(turns, qwen(), after_rewrite="split")
    assert first.divergences[-1].kind == "rewrite"
    assert sum(s.role == "image" for s in second.segments) == 1
    ledger = total([first.ledger, second.ledger])
    assert ledger.sampled == ledger.trained == sum(len(t.output_ids) for t in turns)


def test_a_recorded_call_in_an_odd_split_is_resynced_once_it_ends_as_the_template_does():
    exchanges = recording(VLLM, "h_hud_agent_wire_img")
    first, second = (read_choice(exchange["response"]).turn() for exchange in exchanges)
    ended = Turn(first.prompt_ids, (*first.output_ids[:-1], IM_END), first.output_logprobs)
    stitched = only([ended, second])
    assert {d.kind for d in stitched.divergences} == {"resplit"}
    assert stitched.tokens == second.prompt_ids + second.output_ids
    assert stitched.ended_by is None


def test_an_id_that_no_token_owns_is_a_rewrite_where_a_prompt_does_not_repeat_it():
    """Qwen3-VL has 151,936 rows for 151,669 tokens; a server that forbids nothing samples them, and
    no template can write them again."""
    output = (2612, 151709, 432, IM_END)
    stitched = only(rerendered(output, (2612, 432, IM_END)))
    assert stitched.ended_by == "rewrite"
    assert stitched.tokens == HEAD + output
    assert "<id 151709, which no token owns>" in stitched.divergences[0].explain()
    repeated = only(rerendered(output, output))
    assert repeated.ended_by is None, "ids that are repeated need no text"
    (bare,) = stitch([turn((5, 6), (151709, 7)), turn((5, 6, 8, 7, 9), (7,))], qwen())
    assert bare.ended_by == "rewrite", "nor where there is no control id to go by"
