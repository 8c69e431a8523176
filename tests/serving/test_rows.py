"""Where a stop string ends an output."""

import pytest

from cua_lab.engine.prompt import Prompt
from cua_lab.engine.sequences import RunningSequence, finish, first_stop
from cua_lab.engine.token_sampling import SamplingParams


def said(text: str, *stops: str, min_tokens: int = 0) -> tuple[str, str]:
    """One token a character: what had been said when the output ended, and what ended it."""
    params = SamplingParams(stop=stops, min_tokens=min_tokens)
    row = RunningSequence(
        prompt=Prompt(None, None, None, 0, (), ()),  # type: ignore[arg-type]
        params=params,
        seed=0,
        index=0,
        max_new=len(text),
        stop_ids=frozenset(),
        decode=lambda ids: "".join(map(chr, ids)),
    )
    for character in text:
        row.ids.append(ord(character))
        finish(row)
        if row.finish:
            break
    return "".join(map(chr, row.ids)), str(row.matched)


@pytest.mark.parametrize("stops", [("k", "li"), ("li", "k")])
def test_the_stop_that_comes_first_in_the_text_counts_whatever_the_lists_order(stops) -> None:
    """`["k", "li"]` on "click the" gave "clic" (vllm#50200)."""
    assert said("click the", *stops) == ("cli", "li")
    assert first_stop("click the", stops) == (1, "li")


def test_of_stops_that_begin_together_the_shorter_is_complete_first() -> None:
    assert first_stop("abc", ("abc", "ab")) == (0, "ab")
    assert said("abc", "abc", "ab") == ("ab", "ab")


def test_a_stop_within_the_least_tokens_does_not_count() -> None:
    assert said("xaxbxcx", "x", min_tokens=2) == ("xax", "x")
    assert said("xaxbxcx", "x", min_tokens=3) == ("xaxbx", "x")
    assert first_stop("xaxbxcx", ("x",), after=3) == (4, "x")
    assert said("aaab", "b", min_tokens=4)[0] == "aaab"


def test_a_stop_that_ends_behind_the_least_tokens_counts() -> None:
    assert said("abcd", "bc", min_tokens=2) == ("abc", "bc")
