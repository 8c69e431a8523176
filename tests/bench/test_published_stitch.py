"""The published way to stitch beside ours: what each keeps, and what ours costs."""

import math
from collections import Counter
from typing import ClassVar

from cua_lab.bench.published_stitch import stitch_by_walking
from cua_lab.bench.synthetic_episodes import episode
from cua_lab.stitching.codec import TableCodec
from cua_lab.stitching.stitch import stitch
from cua_lab.stitching.turn import Turn

PLAIN = TableCodec({1: b"a", 2: b" b", 3: b"ab", 4: b"\n"}, {9: "<|im_end|>", 8: "<|im_start|>"})


class CountingCodec(TableCodec):
    """Counts the ids whose bytes were looked up."""

    lookups: ClassVar[Counter[int]] = Counter()

    def token_bytes(self, token_id: int) -> bytes:
        self.lookups[token_id] += 1
        return super().token_bytes(token_id)


def turns_of(turns: int, *, diverging: bool) -> tuple[list[Turn], TableCodec]:
    pairs, codec = episode(turns, diverging=diverging)
    made = [Turn(tuple(p), tuple(o), (-0.5,) * len(o)) for p, o in pairs]
    return made, codec


def test_both_ways_agree_where_nothing_diverges():
    made, codec = turns_of(5, diverging=False)
    (ours,) = stitch(made, codec)
    tokens, mask, _ = stitch_by_walking(made, codec)
    assert list(ours.tokens) == tokens
    assert list(ours.loss_mask) == mask[ours.response_start :]


def test_the_published_way_takes_changed_text_for_the_same_and_ours_does_not():
    logprobs = (-1.0, -1.0, -1.0)
    said = Turn((8,), (1, 2, 9), logprobs)
    shown = Turn((8, 3, 9, 4, 8), (1, 2, 9), logprobs)
    tokens, _, _ = stitch_by_walking([said, shown], PLAIN)
    assert tokens[:3] == [8, 3, 9]
    (ours,) = stitch([said, shown], PLAIN)
    assert ours.tokens == (8, 1, 2, 9)


def test_the_published_way_gives_up_on_five_newlines_and_ours_does_not():
    said = Turn((8,), (1, 4, 4, 4, 4, 4, 9), (-1.0,) * 7)
    shown = Turn((8, 1, 4, 9, 4, 8), (1, 9), (-1.0,) * 2)
    _, mask, _ = stitch_by_walking([said, shown], PLAIN)
    assert sum(mask) == 7
    (ours,) = stitch([said, shown], PLAIN)
    assert ours.ledger.trained == 2 + 1 + 2


def test_a_resync_looks_at_the_last_answer_and_not_at_what_came_before():
    """O(new tokens) a turn: twice the turns, twice the looks, though the prompts quadruple."""
    looks = {}
    for turns in (8, 16):
        made, codec = turns_of(turns, diverging=True)
        counting = CountingCodec(codec.table, codec.control, codec.image_pad_id)
        CountingCodec.lookups = Counter()
        (stitched,) = stitch(made, counting)
        assert len(stitched.divergences) == turns - 1
        looks[turns] = CountingCodec.lookups.total()
    assert math.isclose(looks[16] / 15, looks[8] / 7, rel_tol=0.02)


def test_the_published_way_replaces_nothing_before_a_prompt_is_checked_to_its_end():
    said = Turn((8,), (1, 2, 9), (-1.0,) * 3)
    shown = Turn((8, 3, 9, 4, 8), (1, 9), (-1.0,) * 2)  # "ab" for "a b": taken over
    other = Turn((8, 1, 2, 9, 4, 4, 4, 4, 2), (1, 9), (-1.0,) * 2)  # and then another text
    before, _, _ = stitch_by_walking([said, shown], PLAIN)
    tokens, _, _ = stitch_by_walking([said, shown, other], PLAIN)
    assert tokens == before
