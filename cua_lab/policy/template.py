"""From OpenAI messages to prompt ids, by the policy's own chat template.

Messages are taken as HUD sends them: content a string or a list of parts, images as data URLs,
tool-call arguments as JSON strings. Invariant of the small policy's template (chat_template.jinja):
a rendered prompt, the canonical text of the answer, `<|im_end|>` and a newline are a prefix of the
next turn's prompt, so nothing that was sampled is ever re-tokenised.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from cua_lab.errors import LabError
from cua_lab.pictures import data_url, read_data_url
from cua_lab.policy.pieces import pieces_of
from cua_lab.policy.protocols import Tokenizer
from cua_lab.policy.spelling import (
    Spelling,
    encode_marked,
    encode_text,
    mark,
    spelling_of,
    unmark,
)

Message = dict[str, Any]
ROLES = ("system", "user", "assistant", "tool")
STAND_IN: Message = {"role": "user", "content": ""}
OPENING = "<|im_start|>"
ASKING = f"{OPENING}assistant\n"
"""What the small policy's template ends with."""


@cache
def chat_template() -> str:
    """The small policy's template; it is saved with the checkpoint as `chat_template.jinja`."""
    return (Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8").rstrip("\n")


def render_text(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]] | None = None,
    *,
    add_generation_prompt: bool = True,
) -> str:
    """The prompt as text, one `<|image_pad|>` per image."""
    text = marked_text(tokenizer, messages, tools, add_generation_prompt=add_generation_prompt)
    return unmark(text)


def marked_text(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]] | None = None,
    *,
    add_generation_prompt: bool = True,
) -> str:
    """The prompt for `encode_marked`: what messages say is told from what the template writes."""
    spelling = spelling_of(tokenizer)
    listed = [_for_template(message, index) for index, message in enumerate(messages)]
    try:
        return str(
            tokenizer.apply_chat_template(
                [_marked_message(message, spelling) for message in listed],
                tools=mark(list(tools), spelling.tags) if tools else None,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
            )
        )
    except (TemplateError, TypeError, ValueError, RecursionError) as error:
        raise LabError(
            f"the policy's chat template cannot render these {len(listed)} messages: {error}"
        ) from error


def render(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]] | None = None,
    *,
    add_generation_prompt: bool = True,
) -> list[int]:
    """The prompt's ids, ONE pad id per image; `expand_images` makes room for its tokens."""
    text = marked_text(tokenizer, messages, tools, add_generation_prompt=add_generation_prompt)
    return encode_marked(tokenizer, text)


def render_rest(tokenizer: Tokenizer, messages: Sequence[Message], count: int) -> list[int] | None:
    """The ids that `render` adds to those of the first `count` messages, once their question for an
    answer is taken off; `None` where only rendering everything can tell.

    The small policy's template writes each message by itself, but for the first, which may carry
    the tools, and for tool messages in a row, which share a turn. So the rest is rendered behind a
    message that stands in for all before it. Another template may look anywhere (Qwen3's takes
    earlier thoughts out).
    """
    rest = list(messages[count:])
    if not 0 < count < len(messages) or not _by_message(tokenizer):
        return None
    if messages[count - 1].get("role") == "tool" == rest[0].get("role"):
        return None
    before = marked_text(tokenizer, [STAND_IN], add_generation_prompt=False)
    text = marked_text(tokenizer, [STAND_IN, *rest])
    return encode_marked(tokenizer, text.removeprefix(before))


def generation_prompt(tokenizer: Tokenizer) -> list[int]:
    """The ids behind the last message that ask for an answer; none where that cannot be told."""
    return list(encode(tokenizer, ASKING)) if _by_message(tokenizer) else []


def _by_message(tokenizer: Tokenizer) -> bool:
    """Whether prompts are cut between messages: by the template, and by the tokenizer at every
    added token, of which `OPENING`, where each turn begins, must be one."""
    return (
        tokenizer.chat_template == chat_template()
        and pieces_of(tokenizer).cuts
        and OPENING in spelling_of(tokenizer).ids
    )


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of `text`, special tokens recognised and none added."""
    return encode_text(tokenizer, text)


def expand_images(ids: Sequence[int], counts: Sequence[int], image_token_id: int) -> list[int]:
    """Each single pad id becomes as many as its image has tokens, in order."""
    pads = sum(1 for token in ids if token == image_token_id)
    if pads != len(counts):
        raise LabError(
            f"the prompt has {pads} image places but {len(counts)} images came with it; "
            "a template may drop images (inside tool messages), or text may spell a special token"
        )
    remaining = iter(counts)
    out: list[int] = []
    for token in ids:
        out.extend([token] * next(remaining) if token == image_token_id else [token])
    return out


def images_of(messages: Sequence[Message]) -> list[bytes]:
    """The images of a conversation in the order of the prompt, as encoded bytes."""
    parts = [
        part
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
    ]
    return [image_bytes(part) for part in parts if _is_image(part)]


def image_part(png: bytes) -> dict[str, Any]:
    """A PNG as HUD puts it into a message."""
    return {"type": "image_url", "image_url": {"url": data_url(png)}}


def _is_image(part: Any) -> bool:
    return isinstance(part, dict) and ("image_url" in part or part.get("type") == "image")


def image_bytes(part: dict[str, Any]) -> bytes:
    """The encoded image of a message's image part; raises `LabError` for all but a data URL."""
    url = part.get("image_url")
    url = url.get("url") if isinstance(url, dict) else url
    return read_data_url(url)


def _for_template(message: Message, index: int) -> Message:
    """One message as templates expect it: arguments parsed, images reduced to a mark."""
    role = message.get("role")
    if role not in ROLES:
        raise LabError(f"message {index} has role {role!r}; expected one of {', '.join(ROLES)}")
    out: Message = {"role": role, "content": _content(message.get("content"), index)}
    if message.get("tool_calls"):
        if not isinstance(message["tool_calls"], list):
            raise LabError(f"message {index} has tool_calls that are not a list")
        out["tool_calls"] = [_call(call, index) for call in message["tool_calls"]]
    return out


def _marked_message(message: Message, spelling: Spelling) -> Message:
    """A policy's own words may hold the ids of a call; nothing else that is said may."""
    tags = spelling.special_tags if message["role"] == "assistant" else spelling.tags
    out = dict(message, content=mark(message["content"], tags))
    if message.get("tool_calls"):
        out["tool_calls"] = mark(message["tool_calls"], spelling.tags)
    return out


def _content(content: Any, index: int) -> str | list[dict[str, Any]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise LabError(
            f"message {index} has content of type {type(content).__name__}; "
            "expected a string or a list of parts"
        )
    return [_part(part, index) for part in content]


def _part(part: Any, index: int) -> dict[str, Any]:
    if _is_image(part):
        return {"type": "image"}
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    raise LabError(f"message {index} has a part that is neither text nor an image: {part!r:.80}")


def _call(call: Any, index: int) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise LabError(
            f'message {index} replays a call that is not {{"function": {{"name": ...,'
            f' "arguments": ...}}}}: {call!r:.80}'
        )
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:  # also numbers of more than 4300 digits
            raise LabError(
                f"message {index} replays a call whose arguments are not JSON ({error}): "
                f"{arguments!r:.80}"
            ) from error
    return {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
