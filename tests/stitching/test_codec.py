"""Codecs: bytes of ids, and which ids are structure."""

import pytest

from cua_lab.stitching.codec import TableCodec, codec_from_tokenizer
from tests.stitching.codecs import CALL, IM_END, PAD, qwen


def test_qwen_ids_have_the_bytes_of_the_real_ranks():
    codec = qwen()
    for token_id, data in [(198, b"\n"), (271, b"\n\n"), (382, b".\n\n"), (624, b".\n")]:
        assert codec.token_bytes(token_id) == data
    assert codec.image_pad_id == PAD
    assert codec.token_bytes(IM_END) == b""


def test_a_call_tag_is_text_and_a_control_token_is_not():
    """`<tool_call>` as a special token vanishes under `skip_special_tokens`."""
    assert CALL not in qwen().control
    assert qwen().token_bytes(CALL) == b"<tool_call>"
    assert IM_END in qwen().control


def test_an_id_outside_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match="999999 is not in the vocabulary"):
        qwen().token_bytes(999999)


def test_the_image_pad_must_be_a_control_id():
    with pytest.raises(ValueError, match="image pad 5"):
        TableCodec({5: b"x"}, {}, image_pad_id=5)


def test_a_hugging_face_tokenizer_gives_the_bytes_of_any_text():
    from cua_lab.policy.tokenizer import Corpus, train_tokenizer

    text = 'Größe ≥ 3\n<tool_call>\n{"name": "computer"}\n</tool_call>'
    tokenizer = train_tokenizer(Corpus((text, text), phrases=("system\nYou drive.",)))
    codec = codec_from_tokenizer(tokenizer)
    ids = tokenizer(f"system\nYou drive.{text}", add_special_tokens=False)["input_ids"]
    assert b"".join(map(codec.token_bytes, ids)).decode() == f"system\nYou drive.{text}"
    assert codec.control[codec.image_pad_id] == "<|image_pad|>"
    assert tokenizer.convert_tokens_to_ids("<tool_call>") not in codec.control
    assert len(codec.table) + len(codec.control) == len(tokenizer)
