"""Small synthetic episodes for the pictures: a byte-and-word codec, stitched sequences, screens."""

import math
from dataclasses import dataclass, field

from PIL import Image, ImageDraw

from cua_lab.viz.frames import Frame

PAD, START, END, SEE, SEEN, CALL, CALLED = 300, 301, 302, 303, 304, 305, 306
SPECIALS = {
    PAD: b"<|image_pad|>",
    START: b"<|im_start|>",
    END: b"<|im_end|>",
    SEE: b"<|vision_start|>",
    SEEN: b"<|vision_end|>",
    CALL: b"<tool_call>",
    CALLED: b"</tool_call>",
}


CALL_HEAD = ["Click", " it", ".", "\n\n", CALL, "\n", '{"', "name", '":', ' "', "computer", '",']
CALL_HEAD += [' "', "arguments", '":', ' {"', "x", '":']


class WordCodec:
    """Ids 0-255 are bytes, 300-306 specials, from 400 on words in the order they were first met."""

    def __init__(self) -> None:
        self.words: list[bytes] = []

    def token_bytes(self, token_id: int) -> bytes:
        if token_id < 256:
            return bytes([token_id])
        return SPECIALS.get(token_id) or self.words[token_id - 400]

    def encode(self, *words: str | int) -> list[int]:
        ids = []
        for word in words:
            if isinstance(word, int):
                ids.append(word)
                continue
            raw = word.encode()
            if raw not in self.words:
                self.words.append(raw)
            ids.append(400 + self.words.index(raw))
        return ids


@dataclass
class Segment:
    role: str
    start: int
    end: int
    turn: int


@dataclass
class Divergence:
    turn: int
    index: int
    kind: str
    emitted_ids: tuple[int, ...]
    rendered_ids: tuple[int, ...]

    def explain(self) -> str:
        return "The server's parser dropped the blank line before the call."


@dataclass
class Stitched:
    """The contract of `cua_lab.rollout.stitch.Stitched`, built by appending runs."""

    tokens: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    response_start: int = 0

    def add(
        self, role: str, ids: list[int], turn: int, logprobs: list[float] | None = None
    ) -> None:
        start = len(self.tokens)
        self.tokens += ids
        self.segments.append(Segment(role, start, len(self.tokens), turn))
        if role == "policy":
            self.loss_mask += [1] * len(ids)
            self.logprobs += logprobs or [-0.02 * (1 + i * i % 17) for i in range(len(ids))]
        elif self.loss_mask:
            self.loss_mask += [0] * len(ids)
            self.logprobs += [math.nan] * len(ids)
        else:
            self.response_start = len(self.tokens)


def board(turn: int, size: int = 128) -> Image.Image:
    """A picture that differs from turn to turn."""
    image = Image.new("RGB", (size, size), (238, 236, 228))
    draw = ImageDraw.Draw(image)
    for row in range(3):
        for column in range(3):
            x, y = 8 + column * 40, 8 + row * 40
            hot = (row * 3 + column) == (turn * 4 + 1) % 9
            draw.rectangle((x, y, x + 30, y + 26), fill=(214, 40, 40) if hot else (88, 124, 172))
    return image


def frame(turn: int) -> Frame:
    cell = (turn * 4 + 1) % 9
    x, y = (23 + cell % 3 * 40) * 1000 // 128, (21 + cell // 3 * 40) * 1000 // 128
    return Frame.of(board(turn), {"action": "click", "x": x, "y": y})


def episode(turns: int = 3, *, codec: WordCodec | None = None, hostile: str = "") -> Stitched:
    """A click episode: prompt with an image, then `turns` turns of call, result and screenshot."""
    codec = codec or WordCodec()
    stitched = Stitched()
    say = codec.encode
    screen = [PAD] * 16
    words = ["You", " use", " a", " screen", ".", " Turns", " are", " scarce"]
    ask = ["Click", " the", " red", " button", ".", hostile or "."]
    system = say(START, "system", "\n", *words, ".\n", END, "\n", START, "user", "\n", *ask, SEE)
    stitched.add("prompt", system, 0)
    stitched.add("image", screen, 0)
    stitched.add("prompt", say(SEEN, END, "\n", START, "assistant", "\n"), 0)
    for turn in range(turns):
        digits = [str((turn * 37 + k * 11) % 10) for k in range(6)]
        call = say(*CALL_HEAD, " ", *digits[:3], ",", ' "', "y", '":', " ", *digits[3:])
        call += say("}}", "\n", CALLED, END)
        stitched.add("policy", call, turn)
        if turn == turns - 1:
            break
        if turn == 0:
            emitted, rendered = say(".", "\n\n", CALL), say(".", "\n", CALL)
            stitched.divergences.append(
                Divergence(0, 3, "white_space", tuple(emitted), tuple(rendered))
            )
            stitched.add("resynced", say("\n", CALL), turn)
        result = say("\n", START, "tool", "\n", "done", END, "\n", START, "user", "\n")
        result += say("The", " café", " screen", ":\n", 0xC3, 0xA9, SEE)
        stitched.add("scaffold", result, turn + 1)
        stitched.add("image", screen, turn + 1)
        stitched.add("scaffold", say(SEEN, END, "\n", START, "assistant", "\n"), turn + 1)
    return stitched
