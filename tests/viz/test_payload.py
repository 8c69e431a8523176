"""What the viewer is given, and that its counts add up."""

import json
import math

import numpy as np
import pytest

from cua_lab.errors import LabError
from cua_lab.stitching.sample import Sample
from cua_lab.viz.frames import Frame
from cua_lab.viz.payload import ROLES, token_text, viewer_payload
from tests.viz.episodes import CALL, END, Builder, WordCodec, board, episode, frame


@pytest.fixture
def codec() -> WordCodec:
    return WordCodec()


def test_role_counts_sum_to_the_tokens_and_the_mask_to_the_trained_ones(codec):
    stitched = episode(4, codec=codec)
    (member,) = viewer_payload(stitched, codec)["members"]
    counts = member["counts"]
    assert sum(counts[role] for role in ROLES) == counts["total"] == len(stitched.tokens)
    assert counts["trained"] == sum(stitched.loss_mask)
    assert counts["trained"] == sum(end - start for start, end in member["mask"])
    assert counts["trained"] == len(member["values"]["logprob"])


def test_the_mask_marks_sampled_tokens_and_no_others(codec):
    (member,) = viewer_payload(episode(3, codec=codec), codec)["members"]
    policy = [[s, e] for role, s, e, *_ in member["segments"] if role == "policy"]
    assert member["mask"] == policy


def test_what_was_said_before_a_call_is_told_apart_from_the_call(codec):
    built = Builder()
    built.add("prompt", codec.encode("Go"), 0)
    for turn in range(2):
        built.add("policy", codec.encode("00", "35", " row", "\n", CALL, "{}", END), turn)
        built.add("scaffold", codec.encode("seen"), turn + 1)
    (member,) = viewer_payload(built.build(), codec)["members"]
    assert member["thoughts"] == [[1, 5], [9, 13]]


def test_an_answer_without_a_call_or_without_words_holds_no_thought(codec):
    for words in (("Just", " words", END), (CALL, "{}", END)):
        built = Builder()
        built.add("prompt", codec.encode("Go"), 0)
        built.add("policy", codec.encode(*words), 0)
        (member,) = viewer_payload(built.build(), codec)["members"]
        assert member["thoughts"] == []


def test_what_a_turn_says_before_its_call_is_told_apart_from_the_call(codec):
    stitched = episode(3, codec=codec)
    (member,) = viewer_payload(stitched, codec)["members"]
    said = [
        "".join(token_text(codec, t) for t in member["ids"][a:b]) for a, b in member["thoughts"]
    ]
    assert said == ["Click it.", "Click it.\n\n", "Click it.\n\n"]  # turn 0's blank was adopted
    trained = {i for start, end in member["mask"] for i in range(start, end)}
    assert all(set(range(a, b)) <= trained for a, b in member["thoughts"])


@pytest.mark.parametrize(
    ("words", "thought"),
    [
        (["I", " see", "<tool_call>", "{}"], "I see"),
        (["I", " see <tool", "_call>{}"], "I"),
        (["\n", "<tool_call>", "{}"], ""),
        (["<tool_call>", "{}", "<tool_call>", "{}"], ""),
        (["no", " call"], ""),
    ],
)
def test_a_thought_ends_where_a_call_opens_however_it_is_cut_into_tokens(codec, words, thought):
    built = Builder()
    built.add("prompt", codec.encode("go"), 0)
    built.add("policy", codec.encode(*words), 0)
    (member,) = viewer_payload(built.build(), codec)["members"]
    said = [
        "".join(token_text(codec, t) for t in member["ids"][a:b]) for a, b in member["thoughts"]
    ]
    assert "".join(said) == thought


def test_control_ids_show_their_names_and_halves_of_a_character_their_bytes(codec):
    """Two halves both decode to U+FFFD; shown so, different ids would look alike."""
    assert token_text(codec, END) == "<|im_end|>"
    assert token_text(codec, 0xC3) == "\\xc3"
    assert token_text(codec, 0xA9) == "\\xa9"
    assert token_text(codec, codec.encode(" café")[0]) == " café"


def test_a_column_may_be_one_number_or_cover_the_trained_or_the_response_tokens(codec):
    stitched = episode(2, codec=codec)
    n, trained = len(stitched.loss_mask), sum(stitched.loss_mask)
    over_response = [float(i) for i in range(n)]
    payload = viewer_payload(
        stitched, codec, advantages=0.5, ratios=[1.0] * trained, entropies=over_response
    )
    values = payload["members"][0]["values"]
    assert values["advantage"] == [0.5] * trained
    assert values["ratio"] == [1.0] * trained
    assert values["entropy"] == [float(i) for i in range(n) if stitched.loss_mask[i]]


def test_a_column_of_another_length_is_refused_with_both_numbers(codec):
    with pytest.raises(LabError, match=r"ratio column has 3 entries.*of which 67 are trained"):
        viewer_payload(episode(2, codec=codec), codec, ratios=[1.0, 1.0, 1.0])


def test_missing_is_null_and_never_zero(codec):
    stitched = episode(1, codec=codec)
    trained = sum(stitched.loss_mask)
    entropies = [math.nan, None, *[0.1] * (trained - 2)]
    values = viewer_payload(stitched, codec, entropies=entropies)["members"][0]["values"]
    assert values["entropy"][:3] == [None, None, 0.1]
    assert "ratio" not in values


def test_images_go_to_the_image_segments_in_order_with_the_click_on_each(codec):
    (member,) = viewer_payload(
        episode(3, codec=codec), codec, images=[frame(0), frame(1), board(2)]
    )["members"]
    where = [i for i, s in enumerate(member["segments"]) if s[0] == "image"]
    assert sorted(map(int, member["images"])) == where
    first, _, last = (member["images"][str(i)] for i in where)
    assert first["point"] == [0.492, 0.164]
    assert first["label"] == "click (492, 164)"
    assert last["point"] is None


def test_a_wrong_number_of_images_is_refused_with_both_numbers(codec):
    with pytest.raises(LabError, match=r"3 image segments but 2 images"):
        viewer_payload(episode(3, codec=codec), codec, images=[frame(0), frame(1)])


def test_a_divergence_stands_between_what_was_sampled_and_what_was_adopted(codec):
    (member,) = viewer_payload(episode(3, codec=codec), codec)["members"]
    (divergence,) = member["divergences"]
    segments = member["segments"]
    assert segments[divergence["at"]][0] == "policy"
    assert segments[divergence["at"] + 1][0] == "resynced"
    assert [text for _, text in divergence["emitted"]] == ["\n\n"]
    assert [text for _, text in divergence["rendered"]] == ["\n"]


def test_a_group_shares_one_vocabulary_and_each_member_keeps_its_reward(codec):
    pair = [episode(2, codec=codec), episode(3, codec=codec)]
    payload = viewer_payload(pair, codec, rewards=[1.0, None], advantages=[0.7, -0.7])
    used = {str(token) for stitched in pair for token in stitched.tokens}
    assert set(payload["vocab"]) == used
    assert [member["reward"] for member in payload["members"]] == [1.0, None]
    with pytest.raises(LabError, match="2 sequences but 1 advantages"):
        viewer_payload(pair, codec, advantages=[0.7])


def test_the_payload_is_plain_json_and_the_same_every_time(codec):
    def dumped() -> str:
        frames = [frame(i) for i in range(3)]
        payload = viewer_payload(episode(3, codec=codec), codec, images=frames)
        return json.dumps(payload, allow_nan=False)

    assert dumped() == dumped()


def test_a_frame_refuses_a_point_off_the_screen_but_an_action_off_the_screen_has_none():
    with pytest.raises(ValueError, match=r"fraction of the screen"):
        Frame(board(0), point=(1.2, 0.5))
    assert Frame.of(board(0), {"action": "click", "x": 1200, "y": 5}).point is None
    in_pixels = Frame.of(board(0), {"action": "click", "x": 64, "y": 32}, coordinate_space="pixels")
    assert in_pixels.point == (0.5, 0.25)


def test_a_sample_brings_its_name_its_reward_and_its_status(codec):
    stitched = episode(1, codec=codec)
    pixels, grid = np.zeros((16, 4), np.float32), np.array([[1, 4, 4]])
    sample = Sample(stitched, pixels, grid, 0.5, "g", "episode-7", "truncated")
    (member,) = viewer_payload([sample], codec)["members"]
    assert (member["name"], member["reward"], member["status"]) == ("episode-7", 0.5, "truncated")


def test_an_id_that_no_token_owns_is_shown_by_its_number():
    """A checkpoint's vocabulary is padded, and some servers sample the padding."""
    from cua_lab.stitching.codec import TableCodec
    from cua_lab.viz.payload import token_text

    codec = TableCodec({1: b"a"}, {2: "<|im_end|>"})
    assert [token_text(codec, token) for token in (1, 2, 151709)] == [
        "a",
        "<|im_end|>",
        "<id 151709>",
    ]
