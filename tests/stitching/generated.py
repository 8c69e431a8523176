"""Generated episodes: texts, random splits of them, and servers that write history anew.

Every sampled token has a log-probability of its own, so that a test can tell which one was kept.
"""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from cua_lab.stitching.codec import TableCodec
from cua_lab.stitching.turn import Turn
from tests.stitching import codecs

Encode = Callable[[str], tuple[int, ...]]
END = "<|im_end|>"
PICTURE = "<|vision_start|><|image_pad|><|image_pad|><|vision_end|>"
SCAFFOLD = f"\n<|im_start|>user\nSeen:{PICTURE}{END}\n<|im_start|>assistant\n"
HEAD = f"<|im_start|>system\nYou drive.{END}\n<|im_start|>user\nGo.{END}\n<|im_start|>assistant\n"

KITS: dict[str, tuple[TableCodec, Encode]] = {
    "bytes": (codecs.BYTES, codecs.encode_bytes),
    "qwen": (codecs.qwen(), codecs.encode),
}

codecs.encode(HEAD)  # load the ranks here, not within a strategy

words = st.lists(
    st.sampled_from(["Click", "it", "é", "日本", "🙂", "a", "b", "«", "x1", "Ok."]),
    min_size=1,
    max_size=4,
)
strings = st.text(st.sampled_from('ab \n"\\é🙂<{'), min_size=1, max_size=5)
values = st.one_of(
    st.integers(-9, 999), strings, st.booleans(), st.none(), st.sampled_from([0.5, 2.0])
)
arguments = st.dictionaries(st.sampled_from("xyzt"), values, min_size=1, max_size=3)


@dataclass(frozen=True)
class Answer:
    """What the policy says in one turn."""

    words: list[str]
    calls: list[dict[str, Any]]

    def text(self, *, gap: str = "\n", dump: Callable[[Any], str] = json.dumps) -> str:
        """With `gap` before each call and JSON written by `dump`."""
        said = " ".join(self.words)
        for call in self.calls:
            body = dump({"name": "computer", "arguments": call})
            said += f"{gap}<tool_call>\n{body}\n</tool_call>"
        return said


answers = st.builds(Answer, words, st.lists(arguments, max_size=2))

DUMPS: dict[str, Callable[[Any], str]] = {
    "spaced": json.dumps,
    "compact": lambda value: json.dumps(value, separators=(",", ":")),
    "unicode": lambda value: json.dumps(value, ensure_ascii=False),
    "sorted": lambda value: json.dumps(value, sort_keys=True),
    "indented": lambda value: json.dumps(value, indent=1),
}


@dataclass(frozen=True)
class Episode:
    """Turns, and the turn whose output a later prompt changes for real (`None`: none)."""

    turns: list[Turn]
    malign: int | None


@st.composite
def splits(draw, text: str, encode: Encode) -> tuple[int, ...]:
    """Ids of a text cut at random places: seldom the canonical ones."""
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=4))
    places = sorted({0, len(text), *cuts})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    return tuple(i for piece in pieces for i in encode(piece))


@st.composite
def malign_edits(draw, answer: Answer) -> Answer:
    """Another answer: other words, joined words, another value, a lost call."""
    options = [Answer([*answer.words, "more"], answer.calls)]
    if len(answer.words) > 1:
        options.append(Answer(["".join(answer.words[:2]), *answer.words[2:]], answer.calls))
    if answer.calls:
        first, *rest = answer.calls
        key = draw(st.sampled_from(sorted(first)))
        options += [Answer(answer.words, [first | {key: _changed(first[key])}, *rest])]
        options += [Answer(answer.words, rest), Answer(answer.words, [first | {"w": 0}, *rest])]
    return draw(st.sampled_from(options))


def _changed(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        spaceless = value.replace(" ", "")
        return spaceless if spaceless != value else value + " "
    return "null" if value is None else value * 10 + 1


@st.composite
def episodes(draw, kit: str, *, malign: bool = False) -> Episode:
    """An episode whose server writes each answer again: exactly, benignly, or not."""
    _, encode = KITS[kit]
    count = draw(st.integers(2, 5))
    changed = draw(st.integers(0, count - 2)) if malign else None
    prompt = encode(HEAD)
    turns: list[Turn] = []
    for number in range(count):
        answer = draw(answers)
        gap = draw(st.sampled_from(["\n", "\n\n", "\n" * 6, " "]))
        dump = DUMPS[draw(st.sampled_from(sorted(DUMPS)))]
        output = (*draw(splits(answer.text(gap=gap, dump=dump), encode)), *encode(END))
        logprobs = tuple(-1.0 - number - k / 1024 for k in range(len(output)))
        turns.append(Turn(prompt, output, logprobs))
        exact = number != changed and draw(st.booleans())
        shown = draw(malign_edits(answer)) if number == changed else answer
        rendered = output if exact else encode(shown.text() + END)
        prompt = (*prompt, *rendered, *encode(SCAFFOLD))
    return Episode(turns, changed)
