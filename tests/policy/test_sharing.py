"""Tokens that rows have in common."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cua_lab.policy.sharing import shared_tokens

IMAGE = 0


def test_rows_share_what_they_begin_with_and_a_picture_tells_image_tokens_apart() -> None:
    rows = [[1, IMAGE, IMAGE, 2], [1, IMAGE, IMAGE, 3, 4], [1, IMAGE, IMAGE, 2]]
    found = shared_tokens(rows, [[7, 7], [7, 7], [8, 8]], image_token_id=IMAGE)
    assert found.token.tolist() == [[0, 1, 2, 3, 0], [0, 1, 2, 4, 5], [0, 6, 7, 8, 0]]
    assert found.first.tolist() == [0, 1, 2, 3, 8, 9, 11, 12, 13]


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=6), min_size=1, max_size=6))
def test_two_places_share_a_token_exactly_when_all_up_to_them_is_equal(
    rows: list[list[int]],
) -> None:
    found = shared_tokens(rows, [[] for _ in rows], image_token_id=IMAGE)
    places = [(r, c) for r, row in enumerate(rows) for c in range(len(row))]
    prefixes = {place: tuple(rows[place[0]][: place[1] + 1]) for place in places}
    for one in places:
        for other in places:
            same = found.token[one] == found.token[other]
            assert same == (prefixes[one] == prefixes[other])
    width = found.token.shape[1]
    assert [prefixes[divmod(int(f), width)] for f in found.first] == list(
        dict.fromkeys(prefixes[place] for place in places)
    )
