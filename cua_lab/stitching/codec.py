"""What stitching must know of a tokenizer: the bytes of each id, and which ids are structure.

Invariant: a control id (`<|im_end|>`, `<|image_pad|>`, ...) equals only itself and has no bytes;
every other id, `<tool_call>` included, is its bytes. Bytes and not text: halves of a multi-byte
character all decode to U+FFFD, and `skip_special_tokens` hides what it skips.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cua_lab.errors import LabError

QWEN_CONTROL = {
    151643: "<|endoftext|>",
    151644: "<|im_start|>",
    151645: "<|im_end|>",
    151646: "<|object_ref_start|>",
    151647: "<|object_ref_end|>",
    151648: "<|box_start|>",
    151649: "<|box_end|>",
    151650: "<|quad_start|>",
    151651: "<|quad_end|>",
    151652: "<|vision_start|>",
    151653: "<|vision_end|>",
    151654: "<|vision_pad|>",
    151655: "<|image_pad|>",
    151656: "<|video_pad|>",
}
"""Qwen2.5 and Qwen3: added tokens marked special."""
QWEN_TEXTUAL = {
    151657: "<tool_call>",
    151658: "</tool_call>",
    151659: "<|fim_prefix|>",
    151660: "<|fim_middle|>",
    151661: "<|fim_suffix|>",
    151662: "<|fim_pad|>",
    151663: "<|repo_name|>",
    151664: "<|file_sep|>",
    151665: "<tool_response>",
    151666: "</tool_response>",
    151667: "<think>",
    151668: "</think>",
}
"""Qwen2.5 and Qwen3: added tokens that are text of the answer."""


class UnownedId(LabError, ValueError):
    """An id that no token owns: checkpoints pad their vocabulary (Qwen3-VL has 151,936 rows for
    151,669 tokens), and a server that forbids nothing samples from the rows in between."""


class TokenCodec(Protocol):
    """The tokenizer as stitching sees it."""

    @property
    def control(self) -> Mapping[int, str]:
        """Ids that are structure, with their names."""

    @property
    def image_pad_id(self) -> int | None:
        """The id that stands once for each visual token; `None` for a text-only policy."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one id; empty for a control id. Raises `UnownedId` for one without text."""


@dataclass(frozen=True, slots=True)
class TableCodec:
    """A codec read from a table."""

    table: Mapping[int, bytes]
    """Bytes of every id that is not a control id."""
    control: Mapping[int, str]
    image_pad_id: int | None = None

    def __post_init__(self) -> None:
        if self.image_pad_id is not None and self.image_pad_id not in self.control:
            raise ValueError(f"the image pad {self.image_pad_id} is not among the control ids")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one id; an id outside the vocabulary is refused."""
        found = self.table.get(token_id)
        if found is not None:
            return found
        if token_id in self.control:
            return b""
        raise UnownedId(
            f"id {token_id} is not in the vocabulary of {len(self.table) + len(self.control)} ids;"
            " is this the tokenizer of the model that was served?"
        )


class Vocabulary(Protocol):
    """A tokenizer as far as its table of tokens goes."""

    @property
    def added_tokens_decoder(self) -> dict[int, Any]: ...
    def get_vocab(self) -> dict[str, int]: ...


def codec_from_tokenizer(tokenizer: Vocabulary, *, image_pad: str = "<|image_pad|>") -> TableCodec:
    """From a Hugging Face fast tokenizer with a byte-level BPE, its added tokens included."""
    added = tokenizer.added_tokens_decoder
    control = {i: str(token.content) for i, token in added.items() if token.special}
    table = {i: str(token.content).encode() for i, token in added.items() if not token.special}
    to_byte = _byte_of_character()
    for token, token_id in tokenizer.get_vocab().items():
        if token_id not in added:
            table[token_id] = bytes(to_byte[character] for character in token)
    pad = next((i for i, name in control.items() if name == image_pad), None)
    return TableCodec(table, control, pad)


def codec_from_ranks(path: str | Path) -> TableCodec:
    """From a tiktoken ranks file of the Qwen family, with Qwen's added tokens."""
    lines = Path(path).read_bytes().splitlines()
    pairs = (line.split() for line in lines if line)
    table = {int(rank): base64.b64decode(token) for token, rank in pairs}
    table |= {i: text.encode() for i, text in QWEN_TEXTUAL.items()}
    return TableCodec(table, QWEN_CONTROL, image_pad_id=151655)


def _byte_of_character() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes, reversed."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + position): byte for position, byte in enumerate(rest)}
