"""M-RoPE in numpy against transformers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cua_lab.policy.policy import Policy, load_policy
from cua_lab.policy.positions import mrope_positions, next_position

PAD = 99


def sequence(texts: list[int], grids: list[tuple[int, int]], pad: int = PAD) -> list[int]:
    ids = [1] * texts[0]
    for length, (h, w) in zip(texts[1:], grids, strict=True):
        ids += [pad] * (h * w) + [1] * length
    return ids


layouts = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=4).flatmap(
    lambda grids: st.tuples(
        st.lists(st.integers(1, 6), min_size=len(grids) + 1, max_size=len(grids) + 1),
        st.just(grids),
    )
)


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl"])
def test_positions_equal_get_rope_index_for_several_images(
    family: str, policy: Policy, qwen25_checkpoint
) -> None:
    """1-D positions moved log-probabilities by .14; these must be the model's own."""
    chosen = policy if family == "qwen3_vl" else load_policy(qwen25_checkpoint)
    pad = chosen.image_token_id
    grids = [(4, 4), (2, 3), (5, 1)]
    ids = sequence([3, 5, 1, 4], grids, pad)
    patch_grids = np.array([[1, 2 * h, 2 * w] for h, w in grids])
    expected, _ = chosen.model.model.get_rope_index(
        torch.tensor([ids]),
        mm_token_type_ids=(torch.tensor([ids]) == pad).int(),
        image_grid_thw=torch.from_numpy(patch_grids),
    )
    got = mrope_positions(ids, patch_grids, image_token_id=pad)
    assert np.array_equal(got, expected[:, 0].numpy())


@given(layout=layouts)
@settings(max_examples=60, deadline=None)
def test_positions_of_parts_laid_end_to_end_are_those_of_the_whole(layout) -> None:
    """The engine adds a turn at a time: a wrong continuation is silently wrong (off by 2.6)."""
    texts, grids = layout
    rows = [[1, 2 * h, 2 * w] for h, w in grids]
    whole = mrope_positions(sequence(texts, grids), rows, image_token_id=PAD)
    start, parts = 0, [[1] * texts[0]]
    parts += [[PAD] * (h * w) + [1] * n for n, (h, w) in zip(texts[1:], grids, strict=True)]
    built = []
    for part, grid in zip(parts, [None, *rows], strict=True):
        piece = mrope_positions(
            part, [grid] if grid else np.zeros((0, 3)), image_token_id=PAD, start=start
        )
        built.append(piece)
        start = next_position(piece)
    assert np.array_equal(np.concatenate(built, axis=1), whole)


def test_a_wrong_number_of_image_tokens_names_both_counts_and_the_image() -> None:
    with pytest.raises(ValueError, match=r"image 1 of 2 has 4 tokens .* but 3 image tokens"):
        mrope_positions(
            [1, *[PAD] * 4, 1, *[PAD] * 3, 1], [[1, 4, 4], [1, 4, 4]], image_token_id=PAD
        )


def test_image_tokens_without_a_grid_are_refused() -> None:
    with pytest.raises(ValueError, match="4 image tokens from index 1 on have no grid"):
        mrope_positions([1, *[PAD] * 4], np.zeros((0, 3)), image_token_id=PAD)
