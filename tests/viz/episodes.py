"""Small synthetic episodes for the pictures: a word codec, stitched sequences, screens."""

import math
from dataclasses import dataclass, field

from PIL import Image, ImageDraw

from cua_lab.stitching.divergence import Divergence
from cua_lab.stitching.ledger import TokenLedger
from cua_lab.stitching.stitched import Role, Segment, Stitched
from cua_lab.viz.frames import Frame

PAD, START, END, SEE, SEEN, CALL, CALLED = 300, 301, 302, 303, 304, 305, 306
CONTROL = {
    PAD: "<|image_pad|>",
    START: "<|im_start|>",
    END: "<|im_end|>",
    SEE: "<|vision_start|>",
    SEEN: "<|vision_end|>",
}
TEXTUAL = {CALL: b"<tool_call>", CALLED: b"</tool_call>"}
CALL_HEAD = ["Click", " it", ".", "\n\n", CALL, "\n", '{"', "name", '":', ' "', "computer", '",']
CALL_HEAD += [' "', "arguments", '":', ' {"', "x", '":']


class WordCodec:
    """Ids 0-255 are bytes, 300-306 added tokens, from 400 on words as they are first met."""

    control = CONTROL

    def __init__(self) -> None:
        self.words: list[bytes] = []

    def token_bytes(self, token_id: int) -> bytes:
        if token_id < 256:
            return bytes([token_id])
        return TEXTUAL.get(token_id) or self.words[token_id - 400]

    def encode(self, *words: str | int) -> list[int]:
        return [self._id(word) for word in words]

    def _id(self, word: str | int) -> int:
        if isinstance(word, int):
            return word
        if (raw := word.encode()) not in self.words:
            self.words.append(raw)
        return 400 + self.words.index(raw)


@dataclass
class Builder:
    """A `Stitched`, built by appending runs."""

    tokens: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    response_start: int = 0

    def add(self, role: Role, ids: list[int], turn: int) -> None:
        start = len(self.tokens)
        self.tokens += ids
        self.segments.append(Segment(role, start, len(self.tokens), turn))
        if role == "policy":
            self.loss_mask += [1] * len(ids)
            self.logprobs += [-0.02 * (1 + i * i % 17) for i in range(len(ids))]
        elif self.loss_mask:
            self.loss_mask += [0] * len(ids)
            self.logprobs += [math.nan] * len(ids)
        else:
            self.response_start = len(self.tokens)

    def build(self) -> Stitched:
        trained = sum(self.loss_mask)
        resynced = sum(s.end - s.start for s in self.segments if s.role == "resynced")
        return Stitched(
            tokens=tuple(self.tokens),
            loss_mask=tuple(self.loss_mask),
            logprobs=tuple(self.logprobs),
            response_start=self.response_start,
            segments=tuple(self.segments),
            divergences=tuple(self.divergences),
            ledger=TokenLedger(trained + resynced, trained, 0, resynced),
        )


def board(turn: int, size: int = 128) -> Image.Image:
    """A picture that differs from turn to turn."""
    image = Image.new("RGB", (size, size), (238, 236, 228))
    draw = ImageDraw.Draw(image)
    for cell in range(9):
        x, y = 8 + cell % 3 * 40, 8 + cell // 3 * 40
        hot = cell == (turn * 4 + 1) % 9
        draw.rectangle((x, y, x + 30, y + 26), fill=(214, 40, 40) if hot else (88, 124, 172))
    return image


def frame(turn: int) -> Frame:
    """The board with a click in the middle of its red cell."""
    cell = (turn * 4 + 1) % 9
    x, y = (23 + cell % 3 * 40) * 1000 // 128, (21 + cell // 3 * 40) * 1000 // 128
    return Frame.of(board(turn), {"action": "click", "x": x, "y": y})


def episode(turns: int = 3, *, codec: WordCodec | None = None, hostile: str = "") -> Stitched:
    """A click episode; the blank line of turn 0's answer was re-rendered as a line break."""
    codec = codec or WordCodec()
    built = Builder()
    say = codec.encode
    words = ["You", " use", " a", " screen", ".", " Turns", " are", " scarce"]
    ask = ["Click", " the", " red", " button", ".", hostile or "."]
    system = say(START, "system", "\n", *words, ".\n", END, "\n", START, "user", "\n", *ask, SEE)
    built.add("prompt", system, 0)
    built.add("image", [PAD] * 16, 0)
    built.add("prompt", say(SEEN, END, "\n", START, "assistant", "\n"), 0)
    for turn in range(turns):
        digits = [str((turn * 37 + k * 11) % 10) for k in range(6)]
        call = say(*CALL_HEAD, " ", *digits[:3], ",", ' "', "y", '":', " ", *digits[3:])
        call += say("}}", "\n", CALLED, END)
        if turn == 0 < turns - 1:
            _resync(built, call, codec)
        else:
            built.add("policy", call, turn)
        if turn < turns - 1:
            result = say("\n", START, "tool", "\n", "done", END, "\n", START, "user", "\n")
            result += say("The", " café", " screen", ":\n", 0xC3, 0xA9, SEE)
            built.add("scaffold", result, turn + 1)
            built.add("image", [PAD] * 16, turn + 1)
            built.add("scaffold", say(SEEN, END, "\n", START, "assistant", "\n"), turn + 1)
    return built.build()


def long_episode(tokens: int, codec: WordCodec) -> Stitched:
    """At least `tokens` tokens: a long prompt, then many turns with a screenshot each."""
    built = Builder()
    say = codec.encode
    built.add("prompt", say("You", " may", " click", " the", " red", " one", "\n") * 40, 0)
    turn = 0
    while len(built.tokens) < tokens:
        built.add("policy", say(*CALL_HEAD[:12]) * 6, turn)
        turn += 1
        built.add("scaffold", say("\n", START, "tool", " done", END) * 4, turn)
        built.add("image", [PAD] * 64, turn)
        built.add("scaffold", say(SEEN, "\n", START) * 9, turn)
    return built.build()


def _resync(built: Builder, call: list[int], codec: WordCodec) -> None:
    built.add("policy", call[:3], 0)
    adopted = codec.encode("\n")
    built.divergences.append(
        Divergence(
            turn=0,
            index=len(built.tokens),
            kind="white_space",
            emitted_ids=tuple(call[3:4]),
            rendered_ids=tuple(adopted),
            emitted_text="\n\n",
            rendered_text="\n",
            seen_in=1,
        )
    )
    built.add("resynced", adopted, 0)
    built.add("policy", call[4:], 0)
