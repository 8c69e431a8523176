"""The small policy's tokenizer: byte-level BPE over the lab's own text, without word splitting.

Any text encodes and decodes to itself (256 byte tokens lie under everything). Text is cut only at
special tokens, digits, key names and colours, so the fixed syntax of a call is one token and each
thing the policy decides is one token: an episode takes a third of the ids it takes with Qwen's
word splitting, and learns faster. Long fixed stretches that only the scaffold says (system prompt
with tools) are whole tokens of their own, `phrases`: merges towards them would cost thousands of
vocabulary rows. Invariant: the same corpus gives the same ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from cua_lab.policy import protocols
from cua_lab.policy.protocols import Tokenizer
from cua_lab.policy.template import chat_template

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
"""Qwen's; they vanish under `skip_special_tokens`."""
CALL_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Single ids, but not special: a call must survive `skip_special_tokens`."""

ISOLATED = (
    r"\Aassistant\n"
    r"|[0-9]"
    r'|(?<=")(?:left|right|up|down|enter|esc|tab|space|backspace|delete)(?=")'
    r"|\b(?:red|grey|green|blue|yellow|orange|purple|pink|black|white)\b"
)
"""Each of these is a piece of its own before merges: one decision, one id. The first is the end of
the generation prompt: merged with what is said next it would be an id that no rollout has."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """What a tokenizer is trained on."""

    texts: tuple[str, ...]
    """Rendered conversations and calls; pieces seen at least twice become tokens."""
    phrases: tuple[str, ...] = ()
    """Scaffold text that becomes one token each, wherever it occurs verbatim."""


def train_tokenizer(corpus: Corpus, *, vocab_size: int = 1024) -> Tokenizer:
    """Train on `corpus` and wrap as a plain Hugging Face tokenizer with the lab's template.

    `vocab_size` limits the merged tokens; training stops earlier when no pair repeats.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(ISOLATED), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(_pieces(corpus), trainer)
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS])
    whole = (*CALL_TOKENS, *corpus.phrases)
    core.add_tokens([AddedToken(t, special=False, normalized=False) for t in whole])
    # Its signatures are wider than what is needed of it.
    made: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        chat_template=chat_template(),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=[
            t for t in SPECIAL_TOKENS if t not in ("<|im_end|>", "<|endoftext|>")
        ],
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )
    return cast("protocols.Tokenizer", made)


def phrases_of(prompts: Iterable[str]) -> tuple[str, ...]:
    """The stretches between `<|im_start|>` and `<|im_end|>` of system messages, each once."""
    pattern = re.compile(r"<\|im_start\|>(system\n.*?)<\|im_end\|>", re.DOTALL)
    found = (match for prompt in prompts for match in pattern.findall(prompt))
    return tuple(dict.fromkeys(found))


def _pieces(corpus: Corpus) -> Iterable[str]:
    """Texts cut where encoding will cut them, phrases left out (they are tokens already)."""
    cuts = sorted((*corpus.phrases, *SPECIAL_TOKENS, *CALL_TOKENS), key=len, reverse=True)
    pattern = re.compile("|".join(re.escape(cut) for cut in cuts))
    for text in corpus.texts:
        yield from (piece for piece in pattern.split(text) if piece)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Any checkpoint's tokenizer, from its folder, without a network."""
    from transformers import AutoTokenizer

    loaded: Any = AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    return cast("Tokenizer", loaded)


def token_ids(tokenizer: Tokenizer, tokens: Sequence[str]) -> tuple[int, ...]:
    """Ids of those `tokens` that are single ids here; the others are left out."""
    vocabulary = tokenizer.get_vocab()
    return tuple(vocabulary[token] for token in tokens if token in vocabulary)
