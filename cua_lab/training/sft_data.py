"""From a file of samples or conversations to examples with a loss mask.

    row ──Asking──▶ messages, tools ──mask_assistant──▶ ids, mask ──image──▶ SftExample

A line is a grounding row (`dataset.sample`) or a conversation `{"messages": [...]}` in the
article's shape or ours (`dataset.conversations`). Rows and conversations of one image, one text and
one action are brought into the policy's space; all others are trained on as they are written, so
their file must be in that space already. A conversation keeps its own system message. Screenshots
are paths relative to the file, read only when their turn comes.

Invariant: the trained tokens are exactly what the assistant says, every call of it included, and
its end token; a chat template that drops a call is refused, not trained on.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cua_lab.dataset import conversations
from cua_lab.dataset.difficulty import Curriculum, curriculum
from cua_lab.dataset.grounding import GroundingSample, from_row
from cua_lab.dataset.masks import mask_assistant
from cua_lab.dataset.message_parts import images_of, is_sample, messages_of
from cua_lab.dataset.prompt_format import PromptFormat
from cua_lab.dataset.spaces import Space, as_space
from cua_lab.errors import LabError
from cua_lab.pictures import open_rgb
from cua_lab.policy.scoring import Example
from cua_lab.policy.template import render_text
from cua_lab.policy.tokenizer import Corpus, phrases_of, train_tokenizer
from cua_lab.policy.vision import tokens_of
from cua_lab.recipes.sft_recipe import DataSettings
from cua_lab.training.warmup import SftExample

if TYPE_CHECKING:
    from cua_lab.policy.policy import Policy

Message = dict[str, Any]
CORPUS = 500
"""Conversations that a new tokenizer is trained on."""


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One line of the file, not yet rendered."""

    where: str
    """File and line, for error messages."""
    sample: GroundingSample | None
    """`None` for a conversation of several steps."""
    messages: tuple[Message, ...] = ()
    """Of a conversation that is trained on as it is written."""
    system: tuple[Message, ...] = ()
    """A sample's own system messages; the policy's usual one where there is none."""

    @property
    def screenshots(self) -> tuple[str, ...]:
        if self.sample is not None:
            return (self.sample.screenshot,)
        return images_of(self.messages)


def read_training_rows(
    path: str | Path, prompt_format: PromptFormat, *, space: Space | None
) -> list[TrainingRow]:
    """All rows of a file; a mistake names its line."""
    rows = list(_rows(Path(path), prompt_format, space))
    if not rows:
        raise LabError(f"{path} has no rows to train on")
    return rows


def _rows(path: Path, prompt_format: PromptFormat, space: Space | None) -> Iterator[TrainingRow]:
    if not path.is_file():
        raise LabError(f"there is no file {path}; give a JSONL of samples or conversations")
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{path} line {number}"
            row: Any = None
            try:
                row = json.loads(line)
                yield _row(row, where, prompt_format, space)
            except (LabError, ValueError, KeyError, TypeError, RecursionError) as error:
                talk = isinstance(row, dict) and "messages" in row
                hint = (
                    "a conversation is checked here alone, so leave it out or correct it"
                    if talk
                    else "`cua-lab data check` sorts such rows out"
                )
                raise LabError(f"{where}: {error}; {hint}") from error


def _row(
    line: Mapping[str, Any], where: str, prompt_format: PromptFormat, space: Space | None
) -> TrainingRow:
    if not isinstance(line, dict):
        raise LabError(f"the line is a {type(line).__name__}; expected an object")
    if "messages" not in line:
        return TrainingRow(where, from_row(line, space=space))
    messages = messages_of(line)
    said = [m for m in messages if m.get("role") == "assistant"]
    if not said:
        raise LabError("the conversation has no assistant message, so nothing to learn")
    if is_sample(messages):
        one_step = {**line, "sample": {"coordinate_space": space} | dict(line.get("sample", {}))}
        sample = conversations.from_conversation(_declared(one_step))
        system = tuple(m for m in messages if m.get("role") == "system")
        return TrainingRow(where, sample, system=system)
    if space != prompt_format.space:
        raise LabError(
            f"a conversation of {len(said)} steps and {len(images_of(messages))} images is trained"
            f" on as it is written, and this policy speaks {prompt_format.space}, but the file is"
            f" declared as {space}"
        )
    if not all("tool_calls" in message for message in said):
        messages = conversations.article_to_tool_calls(messages)
    return TrainingRow(where, None, tuple(messages))


def _declared(conversation: dict[str, Any]) -> dict[str, Any]:
    """Without a space that nobody declared."""
    sample = conversation["sample"]
    if sample.get("coordinate_space") is None:
        sample.pop("coordinate_space", None)
    else:
        sample["coordinate_space"] = as_space(sample["coordinate_space"])
    return conversation


@dataclass(frozen=True, slots=True)
class ConversationReader:
    """Rows, and how they become conversations."""

    rows: Sequence[TrainingRow]
    prompt_format: PromptFormat
    settings: DataSettings
    root: Path
    """Where screenshots are looked for."""

    def conversation(self, index: int) -> tuple[list[Message], list[dict[str, Any]], list[Any]]:
        """Messages, tools and open screenshots (PIL) of a row."""
        try:
            return self._conversation(self.rows[index])
        except LabError as error:
            raise LabError(f"{self.rows[index].where}: {error}") from error

    def _conversation(
        self, row: TrainingRow
    ) -> tuple[list[Message], list[dict[str, Any]], list[Any]]:
        prompt_format = self.prompt_format
        images = [self._image(name) for name in row.screenshots]
        size = images[0].size if images else (1, 1)
        if row.sample is None:
            own = row.messages[0].get("role") == "system"
            system = [] if own else prompt_format.messages("", {})[:-1]
            return [*system, *row.messages], prompt_format.tools(size), images
        sample = row.sample
        sample = replace(sample, image_size=size) if sample.image_size is None else sample
        if self.settings.point == "box_centre":
            sample = centred(sample)
        prompt = prompt_format.messages(sample.instruction, {"type": "image"})
        if row.system:
            prompt = [*row.system, prompt[-1]]
        return [*prompt, prompt_format.answer(sample, size)], prompt_format.tools(size), images

    def _image(self, name: str) -> Any:  # PIL.Image.Image
        return open_rgb(self.root / name, "the screenshot")


@dataclass(slots=True)
class SftDataset:
    """Rows ready to be learnt by one policy."""

    reader: ConversationReader
    policy: Policy
    _texts: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """Ids and mask of rows met before, images not expanded: rendering is half of a row's cost."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Rows are made ahead in a thread, held-out ones in another."""

    def __len__(self) -> int:
        return len(self.reader.rows)

    def example(self, index: int) -> SftExample:
        """Row number `index`, ready to train on."""
        with self._lock:
            return self._example(index)

    def _example(self, index: int) -> SftExample:
        messages, tools, images = self.reader.conversation(index)
        try:
            patches = [self.policy.vision.patchify(image) for image in images]
            if index not in self._texts:
                self._texts[index] = _masked(self.policy, messages, tools)
            return self._expanded(*self._texts[index], patches)
        except LabError as error:
            raise LabError(f"{self.reader.rows[index].where}: {error}") from error

    def _expanded(
        self, ids: Sequence[int], mask: Sequence[int], patches: Sequence[Any]
    ) -> SftExample:
        """Each image's one pad becomes as many as it has tokens, none of them the assistant's."""
        grids = [grid for _, grid in patches]
        pad, limit = self.policy.image_token_id, self.reader.settings.max_tokens
        places = sum(token == pad for token in ids)
        if places != len(patches):
            raise LabError(f"{places} images in the text but {len(patches)} screenshots")
        counts = iter([n for grid in grids for n in tokens_of(grid, self.policy.merge)])
        repeats = [next(counts) if token == pad else 1 for token in ids]
        whole = np.repeat(np.asarray(ids), repeats)
        if len(whole) > limit:
            raise LabError(f"{len(whole)} tokens are more than data.max_tokens, {limit}")
        pixels = np.concatenate([pixel for pixel, _ in patches]) if patches else np.zeros((0, 0))
        stacked = np.concatenate(grids) if grids else np.zeros((0, 3), np.int64)
        example = Example(whole.tolist(), pixels, stacked)
        return SftExample(example, np.repeat(np.asarray(mask, dtype=bool), repeats))


def centred(sample: GroundingSample) -> GroundingSample:
    """The click moved to the middle of its box, where it has both."""
    if sample.bbox is None or sample.coordinates is None:
        return sample
    x0, y0, x1, y1 = sample.bbox
    return replace(sample, coordinates=((x0 + x1) / 2, (y0 + y1) / 2))


def _masked(
    policy: Policy, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    masked = mask_assistant(policy.tokenizer, messages, tools)
    said = [message for message in messages if message["role"] == "assistant"]
    for message, text in zip(said, masked.texts, strict=True):
        for call in message.get("tool_calls") or []:
            if f'"{call["function"]["name"]}"' not in text:
                raise LabError(
                    f"the chat template renders a call to {call['function']['name']} as {text!r}:"
                    " it knows no tools. Set model.chat_template to lab"
                )
    return masked.ids, masked.mask


def batches(
    rows: Sequence[TrainingRow], settings: DataSettings, *, count: int, size: int, seed: int
) -> Iterator[list[int]]:
    """`count` lists of row indices: epoch after epoch in new orders, or from easy to hard."""
    if settings.order == "curriculum":
        yield from _from_easy_to_hard(rows, settings, count=count, size=size, seed=seed)
        return
    order = _endless(len(rows), seed)
    for _ in range(count):
        yield [next(order) for _ in range(size)]


def _endless(count: int, seed: int) -> Iterator[int]:
    import random

    epoch = 0
    while True:
        order = list(range(count))
        random.Random(f"order {seed} {epoch}").shuffle(order)
        yield from order
        epoch += 1


def _from_easy_to_hard(
    rows: Sequence[TrainingRow], settings: DataSettings, *, count: int, size: int, seed: int
) -> Iterator[list[int]]:
    samples = [row.sample for row in rows if row.sample is not None]
    if len(samples) < len(rows):
        raise LabError(
            f"a curriculum grades samples; {len(rows) - len(samples)} of {len(rows)} rows are"
            " conversations of several steps: set data.order to shuffled"
        )
    plan = Curriculum(settings.medium_from, settings.hard_from, settings.review)
    place = {id(sample): index for index, sample in enumerate(samples)}
    for batch in curriculum(samples, plan, batches=count, batch_size=size, seed=seed):
        yield [place[id(sample)] for sample in batch]


def corpus_of_rows(reader: ConversationReader) -> Corpus:
    """The text that a new policy's tokenizer is trained on: the rows as they are rendered."""
    bare = train_tokenizer(Corpus(()))
    texts = []
    for index in range(min(CORPUS, len(reader.rows))):
        messages, tools, _ = reader.conversation(index)
        texts.append(render_text(bare, messages, tools, add_generation_prompt=False))
    return Corpus(tuple(texts), phrases_of(texts))
