"""Demonstrations from a file: trajectories of people or of other agents, as a warm-up learns them.

    trajectories.jsonl ──Trajectories──▶ Demo, Demo, ...

A line is `{"messages": [...], "tools": [...]}` in OpenAI's shape: system, user, assistant with
`tool_calls`, tool. A screenshot is a part `{"type": "image_url", "image_url": {"url": ...}}` with a
data URL, or `{"type": "image", "image": PATH}` relative to the file. `tools` may be left out: the
stage's own then. Clicks are in the space that the stage's tool has.

Invariant: the same file and index give the same demo; a line that cannot be learnt is one
`LabError` with its number, before anything is trained.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from cua_lab.demonstrators.demos import Demo, Message
from cua_lab.errors import LabError
from cua_lab.files import read_text
from cua_lab.pictures import read_base64, read_rgb


@dataclass(frozen=True, slots=True)
class Trajectories:
    """A `Demonstrator`: the file's conversations in order, and again from the first."""

    demos: tuple[Demo, ...]

    @classmethod
    def read(cls, path: str | Path, tools: tuple[dict[str, Any], ...]) -> Trajectories:
        """Every line of the file; raises `LabError` for the first that is none."""
        file = Path(path).expanduser()
        if not file.is_file():
            raise LabError(f"no file {file}: sft.trajectories is a JSONL of conversations")
        lines = enumerate(read_text(file).split("\n"), start=1)
        made = [_demo(line, file, number, tools) for number, line in lines if line.strip()]
        if not made:
            raise LabError(f"{file} holds no trajectory")
        return cls(tuple(made))

    def __call__(self, index: int) -> Demo:
        return self.demos[index % len(self.demos)]


def _demo(line: str, file: Path, number: int, tools: tuple[dict[str, Any], ...]) -> Demo:
    try:
        row = json.loads(line)
        images: list[Image.Image] = []
        messages = [_message(message, file.parent, images) for message in row["messages"]]
        offered = tuple(row.get("tools") or tools)
    except LabError as error:
        raise LabError(f"{file}, line {number}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise LabError(
            f'{file}, line {number} is no conversation ({what}); expected {{"messages": [...]}} in'
            " OpenAI's shape"
        ) from error
    if not any(message["role"] == "assistant" for message in messages):
        raise LabError(f"{file}, line {number}: nobody answers; there is nothing to learn")
    return Demo(tuple(messages), tuple(images), offered)


def _message(message: Mapping[str, Any], folder: Path, images: list[Image.Image]) -> Message:
    """With marks for images, which are appended, and arguments as objects."""
    made = {"content": "", **message, "role": message["role"]}
    content = made["content"]
    if content is None:
        made["content"] = ""
    elif not isinstance(content, str):
        made["content"] = [_part(part, folder, images) for part in content]
    if made.get("tool_calls"):
        made["tool_calls"] = [_call(call) for call in made["tool_calls"]]
    return made


def _part(part: Mapping[str, Any], folder: Path, images: list[Image.Image]) -> dict[str, Any]:
    if part["type"] == "text":
        return dict(part)
    if part["type"] not in ("image_url", "image"):
        raise LabError(f"a part of type {part['type']!r}; expected text, image_url or image")
    images.append(_image(part, folder))
    return {"type": "image"}


def _image(part: Mapping[str, Any], folder: Path) -> Image.Image:
    if part["type"] == "image_url":
        url = str(part["image_url"]["url"])
        if not url.startswith("data:"):
            raise LabError(f"a screenshot at {url[:60]!r}: give a data URL, or a path as `image`")
        return read_rgb(read_base64(url.partition(",")[2]))
    path = folder / str(part["image"])
    if not path.is_file():
        raise LabError(f"no screenshot {path}")
    return read_rgb(path.read_bytes())


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    if isinstance(function["arguments"], str):
        function["arguments"] = json.loads(function["arguments"])
    return {**call, "function": function}
