"""Conversations as prompts, each distinct one rendered once.

The members of a GRPO group open with the same messages and differ in their seeds: rendering,
tokenising and cutting images took 1 ms of each of their requests, and is the same for all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from cua_lab.engine.prompt import Prompt, build_prompt, image_inputs
from cua_lab.policy.byte_cache import ByteCache
from cua_lab.policy.policy import Policy
from cua_lab.policy.template import Message, images_of, render


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
        self._known: ByteCache[bytes, Prompt] = ByteCache(max_bytes, lambda prompt: prompt.size)

    def get(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        ids: Sequence[int] | None = None,
    ) -> Prompt:
        """The prompt of messages; `ids` (one image token per image) replace what they render to."""
        text = json.dumps([messages, tools, ids])
        key = hashlib.blake2b(text.encode(), digest_size=16).digest()
        prompt = self._known.get(key)
        if prompt is None:
            if ids is None:
                ids = render(self._policy.tokenizer, messages, tools)
            prompt = self.of_ids(ids, images_of(messages))
            self._known.put(key, prompt)
        return prompt

    def of_ids(self, ids: Sequence[int], images: Sequence[bytes] = ()) -> Prompt:
        """The prompt of ids with ONE image token per image, and the encoded images."""
        policy = self._policy
        return build_prompt(
            ids,
            image_inputs(images, policy.vision, max_tokens=self._context_length),
            image_token_id=policy.image_token_id,
            vocab_size=policy.vocab_size,
            merge=policy.merge,
        )
