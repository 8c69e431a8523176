"""Token-in mode: a turn is asked for by the ids on record and the part that is new.

    on record: last prompt + last output     new: what the template adds after the last answer
                        └────────────┬────────────┘
                                `/generate`   (sglang, the embedded engine; one pad per image)

History is never rendered again, so a prompt always extends the last one and no divergence can
occur. Invariants: the new part is what the template puts after the text of the history, checked by
prefix; every id is within the vocabulary (one beyond it ends an sglang server); and the prompt that
the server reports starts with the ids on record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cua_lab.errors import LabError
from cua_lab.policy.protocols import Tokenizer
from cua_lab.policy.spelling import encode_marked
from cua_lab.policy.template import marked_text
from cua_lab.serving.dialects import MissingTokenIds
from cua_lab.serving.toolcalls import parse_tool_calls
from cua_lab.stitching.codec import TokenCodec, codec_from_tokenizer
from cua_lab.stitching.turn import Turn

Message = Mapping[str, Any]

PATH = "/generate"
END = "<|im_end|>"
_SAMPLING = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "seed": "sampling_seed",
}
_SAME_NAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "stop",
    "stop_token_ids",
    "regex",
)


class Renderer(Protocol):
    """The policy's chat template and tokenizer."""

    def text(self, messages: Sequence[Message], tools: Sequence[Any] | None, *, ask: bool) -> str:
        """Messages as text, one image pad per image; `ask` adds the generation prompt."""

    def encode(self, text: str) -> Sequence[int]:
        """Ids of such a text, the template's special tokens recognised."""


@dataclass(frozen=True, slots=True)
class TemplateRenderer:
    """By a Hugging Face tokenizer with a chat template."""

    tokenizer: Tokenizer

    def text(self, messages: Sequence[Message], tools: Sequence[Any] | None, *, ask: bool) -> str:
        listed = [dict(message) for message in messages]
        return marked_text(self.tokenizer, listed, tools, add_generation_prompt=ask)

    def encode(self, text: str) -> Sequence[int]:
        return encode_marked(self.tokenizer, text)


@dataclass(frozen=True, slots=True)
class TokenIn:
    """How to go on from ids on record."""

    renderer: Renderer
    codec: TokenCodec
    vocab_size: int

    def request(
        self, asked: Mapping[str, Any], history: Sequence[Message], last: Turn
    ) -> dict[str, Any]:
        """The `/generate` body that answers the chat request `asked`.

        `history` are the messages of the last request; `last` is the turn that answered it.
        """
        messages = asked["messages"]
        known = (*last.prompt_ids, *last.output_ids)
        text = self._new_text(messages, history, asked.get("tools"), last)
        ids = [*one_pad_per_image(known, self.codec.image_pad_id), *self.renderer.encode(text)]
        images = image_urls(messages)
        self._check(ids, len(images))
        body: dict[str, Any] = {
            "input_ids": ids,
            "sampling_params": sampling_params(asked),
            "return_logprob": True,
            "return_prompt_token_ids": True,
        }
        return body | {"image_data": images} if images else body

    def _new_text(
        self,
        messages: Sequence[Message],
        history: Sequence[Message],
        tools: Sequence[Any] | None,
        last: Turn,
    ) -> str:
        """What the template puts between the end of the last answer and the next one."""
        kept = len(history)
        if list(messages[:kept]) != list(history):
            changed = next(i for i, m in enumerate(history) if messages[i : i + 1] != [m])
            raise LabError(
                f"message {changed} of the history changed since the last turn, so the ids on"
                " record cannot be continued; set agent.token_in to false"
            )
        if len(messages) <= kept or messages[kept].get("role") != "assistant":
            raise LabError("token-in mode expects the last answer after the history")
        before = self.renderer.text(messages[: kept + 1], tools, ask=False)
        whole = self.renderer.text(messages, tools, ask=True)
        if not whole.startswith(before) or END not in before:
            at = next((i for i, (a, b) in enumerate(zip(before, whole, strict=False)) if a != b), 0)
            raise LabError(
                "the chat template renders the history another way once messages follow"
                f" ({before[at : at + 40]!r} becomes {whole[at : at + 40]!r}); token-in mode"
                " needs a template that keeps its prefix"
            )
        after_answer = before[before.rindex(END) + len(END) :]
        closed = bool(last.output_ids) and last.output_ids[-1] in self.codec.control
        return ("" if closed else END) + after_answer + whole[len(before) :]

    def _check(self, ids: Sequence[int], images: int) -> None:
        outside = [i for i in ids if not 0 <= i < self.vocab_size]
        if outside:
            raise LabError(
                f"id {outside[0]} is outside the vocabulary of {self.vocab_size} ids; sent, it"
                " would end an sglang server"
            )
        pads = sum(i == self.codec.image_pad_id for i in ids)
        if pads != images:
            raise LabError(f"the prompt has places for {pads} images, the messages have {images}")

    def chat_answer(
        self, body: Mapping[str, Any], asked: Mapping[str, Any], last: Turn
    ) -> dict[str, Any]:
        """A `/generate` answer as the chat completion that was asked for."""
        meta, prompt_ids = body.get("meta_info") or {}, body.get("prompt_token_ids")
        if prompt_ids is None:
            raise MissingTokenIds("the answer of /generate has no `prompt_token_ids`")
        known = [*last.prompt_ids, *last.output_ids]
        if prompt_ids[: len(known)] != known:
            raise MissingTokenIds(
                f"the server's prompt of {len(prompt_ids)} ids does not start with the"
                f" {len(known)} ids on record; is it another model, or one with other image limits?"
            )
        finish = dict(meta.get("finish_reason") or {"type": "stop"})
        message, calls = _message(str(body.get("text", "")), asked.get("tools"))
        called = calls and finish["type"] == "stop"
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": "tool_calls" if called else finish["type"],
            "matched_stop": finish.get("matched"),
            "prompt_token_ids": prompt_ids,
            "response_token_ids": body.get("output_ids"),
            "meta_info": meta,
        }
        prompt, completion = meta.get("prompt_tokens", 0), meta.get("completion_tokens", 0)
        return {
            "id": str(meta.get("id", "generate")),
            "object": "chat.completion",
            "created": 0,
            "model": str(asked.get("model", "")),
            "choices": [choice],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
                "prompt_tokens_details": {"cached_tokens": meta.get("cached_tokens", 0)},
            },
        }


def token_in_of(policy: Any) -> TokenIn:
    """For a `cua_lab.policy.policy.Policy`."""
    codec = codec_from_tokenizer(policy.tokenizer)
    return TokenIn(TemplateRenderer(policy.tokenizer), codec, policy.vocab_size)


def one_pad_per_image(ids: Sequence[int], pad: int | None) -> list[int]:
    """Runs of image pads as one pad each: the server makes room again."""
    return [i for k, i in enumerate(ids) if i != pad or k == 0 or ids[k - 1] != pad]


def image_urls(messages: Sequence[Message]) -> list[str]:
    """Every image of the messages, in order."""
    return [
        part["image_url"]["url"]
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part.get("type") == "image_url"
    ]


def sampling_params(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The chat request's sampling options by their native names."""
    if asked.get("n") not in (None, 1):
        raise LabError(
            f"n={asked['n']} is not possible in token-in mode; ask for one answer a turn"
        )
    same = {name: asked[name] for name in _SAME_NAME if asked.get(name) is not None}
    renamed = {new: asked[old] for old, new in _SAMPLING.items() if asked.get(old) is not None}
    return same | renamed


def _message(text: str, tools: Sequence[Any] | None) -> tuple[dict[str, Any], bool]:
    """The assistant's message, its calls read as the server itself reads them."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if not tools:
        return message, False
    parsed = parse_tool_calls(text, [tool["function"]["name"] for tool in tools])
    message["content"] = parsed.text
    if parsed.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{number}",
                "index": number,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(parsed.calls)
        ]
    return message, bool(parsed.calls)
