"""Conversations as prompts, each distinct one rendered once, and of a longer one what is new.

    turn 1   system, user, screenshot                       rendered whole
    turn 2   the same, call, result, screenshot             the last three, behind turn 1's prompt

The members of a GRPO group open with the same messages and differ in their seeds: rendering,
tokenising and cutting images took 1 ms of each of their requests, and is the same for all. A turn
sends all that was said before once more: rendering it again, and opening each of its screenshots,
took two thirds of what a turn cost outside of the model at 16 turns. Invariant: a prompt is the
same, array for array, however it was made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cua_lab.engine.prompt import ImageInput, Prompt, build_prompt, image_inputs
from cua_lab.errors import LabError
from cua_lab.policy.byte_cache import ByteCache
from cua_lab.policy.policy import Policy
from cua_lab.policy.template import Message, generation_prompt, images_of, render, render_rest


@dataclass(frozen=True, slots=True)
class _Rendered:
    """A prompt, and how many of its last tokens ask for an answer."""

    prompt: Prompt
    asking: int

    def said(self) -> Prompt:
        """What was said alone: an answer and what follows go on behind it."""
        return self.prompt.head(len(self.prompt) - self.asking)


class ChatPrompts:
    """The policy's prompts, the least recently used forgotten beyond `max_bytes`."""

    def __init__(
        self,
        policy: Policy,
        *,
        context_length: int | None = None,
        max_bytes: int = 256 * 2**20,
    ) -> None:
        """Images with more tokens than `context_length` together are refused undecoded."""
        self._policy = policy
        self._context_length = context_length
        self._known: ByteCache[bytes, _Rendered] = ByteCache(max_bytes, lambda r: r.prompt.size)

    def get(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        ids: Sequence[int] | None = None,
    ) -> Prompt:
        """The prompt of messages; `ids` (one image token per image) replace what they render to."""
        keys = list(_keys(messages, tools, ids))
        known = self._known.get(keys[-1])
        if known is None:
            known = self._longer(messages, keys) if ids is None else None
            known = known or self._whole(messages, tools, ids)
            self._known.put(keys[-1], known)
        return known.prompt

    def of_ids(self, ids: Sequence[int], images: Sequence[bytes] = ()) -> Prompt:
        """The prompt of ids with ONE image token per image, and the encoded images."""
        return self._prompt(ids, self._inputs(images))

    def _whole(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None,
        ids: Sequence[int] | None,
    ) -> _Rendered:
        asking = 0
        if ids is None:
            tokenizer = self._policy.tokenizer
            ids, asking = render(tokenizer, messages, tools), len(generation_prompt(tokenizer))
        return _Rendered(self.of_ids(ids, images_of(messages)), asking)

    def _longer(self, messages: Sequence[Message], keys: Sequence[bytes]) -> _Rendered | None:
        """The prompt of the longest known beginning, and the rest behind it.

        `None` where nothing is known or where the rest is refused: the words are the whole's.
        """
        for count in range(len(messages) - 1, 0, -1):
            before = self._known.get(keys[count])
            if before is None or not before.asking:
                continue
            try:
                ids = render_rest(self._policy.tokenizer, messages, count)
                if ids is None:
                    return None
                images = self._inputs(images_of(messages[count:]), before.prompt.images)
                return _Rendered(self._prompt(ids, images, before.said()), before.asking)
            except LabError:
                return None
        return None

    def _inputs(
        self, images: Sequence[bytes], before: Sequence[ImageInput] = ()
    ) -> list[ImageInput]:
        limit = self._context_length
        return image_inputs(images, self._policy.vision, max_tokens=limit, before=before)

    def _prompt(
        self, ids: Sequence[int], images: Sequence[ImageInput], after: Prompt | None = None
    ) -> Prompt:
        policy = self._policy
        return build_prompt(
            ids,
            images,
            image_token_id=policy.image_token_id,
            vocab_size=policy.vocab_size,
            merge=policy.merge,
            after=after,
        )


def _keys(
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]] | None,
    ids: Sequence[int] | None,
) -> Iterator[bytes]:
    """One for each beginning of the messages, the empty one and the whole included."""
    digest = hashlib.blake2b(json.dumps([tools, ids]).encode(), digest_size=16)
    yield digest.digest()
    for message in messages:
        text = json.dumps(message).encode()
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
        yield digest.digest()
