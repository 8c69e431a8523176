"""Codecs for tests: single bytes with a few control ids, and the real Qwen BPE."""

import functools
from collections.abc import Sequence
from pathlib import Path

from cua_lab.stitching.codec import QWEN_CONTROL, TableCodec, codec_from_ranks
from cua_lab.stitching.turn import Turn

IM_START, IM_END, SEE, SEEN, PAD = 151644, 151645, 151652, 151653, 151655
CALL, CALLED, NEWLINE = 151657, 151658, 198

BYTES = TableCodec(
    {byte: bytes([byte]) for byte in range(256)} | {256 + i: b" " * (i + 2) for i in range(3)},
    {
        1000: "<|im_start|>",
        1001: "<|im_end|>",
        1002: "<|vision_start|>",
        1003: "<|vision_end|>",
        1004: "<|image_pad|>",
    },
    image_pad_id=1004,
)
"""One id a byte, three more for runs of spaces, and Qwen's control names."""


@functools.cache
def qwen() -> TableCodec:
    """Bytes of the real Qwen ids, from the ranks that `dashscope` ships."""
    return codec_from_ranks(ranks_file())


def ranks_file() -> Path:
    import importlib.util

    spec = importlib.util.find_spec("dashscope")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "resources" / "qwen.tiktoken"


@functools.cache
def _encoding():
    import tiktoken
    from dashscope.tokenizers.qwen_tokenizer import PAT_STR

    ranks = {data: rank for rank, data in qwen().table.items() if rank < 151643}
    specials = {name: i for i, name in QWEN_CONTROL.items()}
    specials |= {qwen().table[i].decode(): i for i in (CALL, CALLED)}
    return tiktoken.Encoding(
        "qwen", pat_str=PAT_STR, mergeable_ranks=ranks, special_tokens=specials
    )


def encode(text: str) -> tuple[int, ...]:
    """The canonical Qwen ids of a text, control names and call tags as single ids."""
    return tuple(_encoding().encode(text, allowed_special="all"))


def encode_bytes(text: str) -> tuple[int, ...]:
    """Ids of `BYTES`; control names become control ids, a call tag is spelled out."""
    ids: list[int] = []
    while text:
        name = next((n for n in BYTES.control.values() if text.startswith(n)), None)
        if name is None:
            ids += text[0].encode()
            text = text[1:]
        else:
            ids.append(next(i for i, n in BYTES.control.items() if n == name))
            text = text[len(name) :]
    return tuple(ids)


PROMPT = "<|im_start|>user\nClick.<|im_end|>\n<|im_start|>assistant\n"
SCAFFOLD = "\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n"


def turn(prompt: Sequence[int], output: Sequence[int], logprob: float = -0.5, **fields) -> Turn:
    """A turn whose k-th output id has log-probability `logprob - k`."""
    logprobs = tuple(logprob - k for k in range(len(output)))
    return Turn(tuple(prompt), tuple(output), logprobs, **fields)


def rerendered(emitted: Sequence[int], rendered: Sequence[int], **fields) -> list[Turn]:
    """Two turns: the second one's prompt shows the first one's output as `rendered`."""
    head, scaffold, last = encode(PROMPT), encode(SCAFFOLD), encode("Done.<|im_end|>")
    return [
        turn(head, emitted, **fields),
        turn((*head, *rendered, *scaffold), last, logprob=-100.0),
    ]
