"""Dialects: one shape from every server, or an error that says what is missing."""

import math

import pytest

from cua_lab.serving.dialects import MissingTokenIds, read_choice
from tests.recordings import SGLANG, SGLANG_BF16, VLLM, as_sglang, recording

NAMES = [
    "a_text__all_flags_top2",
    "b6_forced_hermes_tool_call",
    "b7_forced_text_and_two_tool_calls",
    "b8_forced_malformed_tool_call",
    "b9_truncated_tool_call",
    "b_image_tools_hist__all_flags_top2",
    "c_stop_token",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("engine", [SGLANG, VLLM])
def test_each_recorded_answer_gives_as_many_ids_as_the_server_counted(engine, name):
    response = recording(engine, name)["response"]
    tokens = read_choice(response)
    assert len(tokens.prompt_ids) == response["usage"]["prompt_tokens"]
    assert len(tokens.output_ids) == response["usage"]["completion_tokens"]
    assert tokens.logprobs is not None
    assert len(tokens.logprobs) == len(tokens.output_ids)
    assert all(map(math.isfinite, tokens.logprobs))


@pytest.mark.parametrize("version", ["0.5.13", "0.5.17"])
def test_older_sglang_versions_read_the_same_as_the_newest(version):
    """The field of the output ids was renamed twice between 0.5.13 and 0.5.18."""
    name = "b6_forced_hermes_tool_call"
    newest = read_choice(recording(SGLANG, name)["response"])
    assert read_choice(as_sglang(recording(SGLANG, name)["response"], version)) == newest


def test_ids_and_logprobs_come_from_the_same_triples():
    response = recording(SGLANG, "b6_forced_hermes_tool_call")["response"]
    triples = response["choices"][0]["meta_info"]["output_token_logprobs"]
    tokens = read_choice(response)
    assert list(zip(tokens.logprobs, tokens.output_ids, strict=True)) == [
        (logprob, token_id) for logprob, token_id, _ in triples
    ]


def test_arrays_of_ids_that_disagree_are_refused():
    response = recording(SGLANG, "c_stop_token")["response"]
    response["choices"][0]["response_token_ids"][-1] += 1
    with pytest.raises(MissingTokenIds, match="disagree"):
        read_choice(response)


@pytest.mark.parametrize("engine", [SGLANG, VLLM])
def test_ids_that_did_not_come_raise(engine):
    """ProRL-Agent-Server#52: a router strips them, and silently nothing is trainable."""
    with pytest.raises(MissingTokenIds, match="were asked for and did not come"):
        read_choice(recording(engine, "a_text__noflags")["response"])


def test_prompt_ids_without_output_ids_raise():
    response = recording(VLLM, "a_text__all_flags_top2")["response"]
    response["choices"][0]["token_ids"] = None
    with pytest.raises(MissingTokenIds, match="output ids were asked for"):
        read_choice(response)


def test_a_number_of_logprobs_that_differs_from_the_ids_is_refused():
    response = recording(VLLM, "a_text__all_flags_top2")["response"]
    response["choices"][0]["logprobs"]["content"].pop()
    with pytest.raises(MissingTokenIds, match="12 output ids but 11 log-probabilities"):
        read_choice(response)


def test_logprobs_that_were_not_asked_for_are_none_and_a_null_is_nan():
    """A missing log-probability is not 0.0: that would say probability 1."""
    assert read_choice(recording(VLLM, "a_text__return_token_ids")["response"]).logprobs is None
    response = recording(VLLM, "a_text__all_flags_top2")["response"]
    response["choices"][0]["logprobs"]["content"][3]["logprob"] = None
    logprobs = read_choice(response).logprobs
    assert math.isnan(logprobs[3])
    assert math.isfinite(logprobs[2])


def test_an_id_that_is_no_whole_number_is_refused():
    response = recording(VLLM, "a_text__all_flags_top2")["response"]
    response["choices"][0]["token_ids"][2] = "token_id:5"
    with pytest.raises(MissingTokenIds, match=r"`token_ids`\[2\] is 'token_id:5'"):
        read_choice(response)


def test_every_choice_is_read_and_one_too_many_is_an_error():
    for engine in (SGLANG, VLLM):
        response = recording(engine, "c_n2")["response"]
        first, second = read_choice(response, 0), read_choice(response, 1)
        assert first.prompt_ids == second.prompt_ids
        assert first.output_ids != second.output_ids
        with pytest.raises(MissingTokenIds, match="2 choices"):
            read_choice(response, 2)


def test_the_stop_token_is_among_the_ids_though_not_in_the_text():
    """verl#3562, slime#514: an answer whose end carries no loss never learns to end."""
    response = recording(SGLANG, "c_stop_token")["response"]
    tokens = read_choice(response)
    assert tokens.output_ids[-1] == response["choices"][0]["matched_stop"]


def test_an_empty_output_is_empty_and_not_missing():
    tokens = read_choice(recording(SGLANG, "c_max_tokens_zero")["response"], max_tokens=0)
    assert tokens.output_ids == ()
    assert tokens.logprobs == ()
    assert tokens.truncated


def test_truncation_is_found_by_count_whatever_the_finish_reason_says():
    """hud-python#480: arguments end in the middle and the server says `tool_calls`."""
    response = recording(SGLANG, "b9_truncated_tool_call")["response"]
    response["choices"][0]["finish_reason"] = "tool_calls"
    assert read_choice(response, max_tokens=15).truncated
    assert not read_choice(response, max_tokens=16).truncated


def test_an_answer_that_ends_exactly_at_the_limit_is_complete():
    response = recording(VLLM, "b6_forced_hermes_tool_call")["response"]
    count, last = len(read_choice(response).output_ids), read_choice(response).output_ids[-1]
    response["choices"][0]["stop_reason"] = None
    assert read_choice(response, max_tokens=count).truncated
    assert not read_choice(response, max_tokens=count, stop_ids=frozenset({last})).truncated


def test_the_weights_version_is_read_and_a_change_within_an_answer_is_kept():
    session = recording(SGLANG_BF16, "w_weight_update_session")
    versions = [read_choice(exchange["response"]).weight_version for exchange in session]
    assert versions[0] == "default"
    assert {"step-7", "step-8"} <= set(versions)
    response = session[0]["response"]
    meta = response["choices"][0]["meta_info"]
    assert read_choice(response).weight_spans == ()
    meta["weight_versions"] = [
        {"version": "default", "start": 0, "end": 4},
        {"version": "step-7", "start": 4, "end": 6},
    ]
    spans = read_choice(response).weight_spans
    assert [(span.version, span.start, span.end) for span in spans] == [
        ("default", 0, 4),
        ("step-7", 4, 6),
    ]


def test_vllm_does_not_say_which_weights_answered():
    assert read_choice(recording(VLLM, "a_text__all_flags_top2")["response"]).weight_version is None


GOOD = {
    "prompt_token_ids": [1, 2],
    "response_token_ids": [3, 4],
    "finish_reason": "stop",
    "meta_info": {"output_token_logprobs": [[-0.5, 3, "a"], [-0.25, 4, "b"]]},
}


def spans(*bounds: tuple[str, int, int]) -> dict:
    versions = [{"version": v, "start": s, "end": e} for v, s, e in bounds]
    return {"meta_info": GOOD["meta_info"] | {"weight_versions": versions}}


@pytest.mark.parametrize(
    ("changed", "top", "says"),
    [
        ({"prompt_token_ids": []}, {}, "`prompt_token_ids` is empty"),
        ({}, {"prompt_token_ids": [1, 9]}, "two arrays of prompt ids disagree"),
        ({"prompt_token_ids": [1, 2**40]}, {}, "not a token id"),
        ({"prompt_token_ids": "12"}, {}, "not a list of token ids"),
        ({"response_token_ids": 5}, {}, "not a list of token ids"),
        ({"meta_info": {"output_token_logprobs": [[0.5, 3], [-1, 4]]}}, {}, "probability 0 is 0.5"),
        ({"meta_info": {"output_token_logprobs": [[-1, 3], [-1e999, 4]]}}, {}, "1 is -inf"),
        ({"meta_info": {"output_token_logprobs": [["x", 3], [-1, 4]]}}, {}, "not a number"),
        ({"meta_info": {"output_token_logprobs": [None, [-1, 4]]}}, {}, "list of"),
        ({"meta_info": [1]}, {}, "`meta_info` is"),
        ({"meta_info": None, "logprobs": {"content": [None, None]}}, {}, "list of objects"),
        ({"meta_info": None, "logprobs": "x"}, {}, "`logprobs` is"),
        (spans(("a", 0, 1), ("b", 0, 2)), {}, "weight_versions.*without gap or overlap"),
        (spans(("a", 0, 1), ("b", 1, 3)), {}, "cover the answer's 2 tokens"),
        (spans(("a", 1, 2), ("b", 0, 1)), {}, "weight_versions"),
        ({"meta_info": GOOD["meta_info"] | {"weight_versions": [{"start": 0}]}}, {}, "list of"),
    ],
)
def test_an_answer_that_contradicts_itself_is_refused_by_what_is_wrong(changed, top, says) -> None:
    with pytest.raises(MissingTokenIds, match=says):
        read_choice({"choices": [GOOD | changed], **top})


@pytest.mark.parametrize("choices", [[None], ["x"], "x", {"0": {}}, None])
def test_what_is_no_choice_is_refused(choices) -> None:
    with pytest.raises(MissingTokenIds, match="choice"):
        read_choice({"choices": choices})


def test_versions_that_follow_each_other_are_kept_and_one_alone_is_not_a_change() -> None:
    body = {"choices": [GOOD | spans(("a", 0, 1), ("b", 1, 2))]}
    assert [(s.version, s.start, s.end) for s in read_choice(body).weight_spans] == [
        ("a", 0, 1),
        ("b", 1, 2),
    ]
    assert read_choice({"choices": [GOOD | spans(("a", 0, 2))]}).weight_spans == ()
