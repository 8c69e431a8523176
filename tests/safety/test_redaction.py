"""Redaction: no secret is left, in whatever shape it stands."""

import json

from hypothesis import given
from hypothesis import strategies as st

from cua_lab.safety.redaction import MARK, redact, redact_call
from cua_lab.safety.typed_text import is_card

SECRET = "correct horse"


@given(st.recursive(st.text(max_size=20) | st.integers() | st.none(),
                    lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8),
       st.text(max_size=10), st.text(max_size=10))  # fmt: skip
def test_a_known_secret_is_nowhere(value, before, after) -> None:
    value = {"text": before + SECRET + after, "rest": value, "keys": ["ctrl+a", *SECRET]}
    found = redact(value, {SECRET})
    assert SECRET not in json.dumps(found, ensure_ascii=False)
    assert found["keys"] == [MARK]


def test_what_looks_like_a_secret_goes_without_being_told() -> None:
    assert redact("card 4111 1111 1111 1111, thanks") == f"card {MARK}, thanks"
    assert "4111" not in redact("4111 1111 1111 1111" + " and so on" * 1000)
    assert "hunter22" not in redact("password: hunter22")
    assert "abc123" not in redact("ghp_" + "abc123" * 6)


def test_other_text_stays_as_it_is() -> None:
    value = {"action": "type", "text": "Buy milk at 5, 12345", "keys": ["left", "up"], "x": 5}
    assert redact(value) == value


def test_a_board_that_was_read_is_no_card() -> None:
    board = "0012/0000/0044/0500 33"
    assert is_card(board.replace("/", "").replace(" ", "")), "its digits would pass"
    assert redact(f"{board} 34 row") == f"{board} 34 row"


def test_a_call_that_typed_a_short_secret_keeps_nothing_of_it() -> None:
    call = redact_call({"action": "type", "text": "abc"}, {"abc"}, typed=True)
    assert call == {"action": "type", "text": MARK}
