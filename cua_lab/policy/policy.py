"""A `Policy`: network, tokenizer and image processor, and what the lab must know about them.

Saved and loaded as a plain Hugging Face checkpoint folder: any Qwen3-VL or Qwen2.5-VL folder
loads, and what is saved here loads with transformers alone. Invariant: `forbidden_ids` is the one
list of ids that the policy cannot say, used in sampling and in scoring.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cua_lab.errors import LabError
from cua_lab.policy.model import build_model, speed_up
from cua_lab.policy.protocols import Network, Tokenizer
from cua_lab.policy.shape import Shape
from cua_lab.policy.tokenizer import Corpus, load_tokenizer, token_ids, train_tokenizer
from cua_lab.policy.vision import Vision, build_processor
from cua_lab.policy.weight_files import weight_files
from cua_lab.policy.weights import (
    quiet,
    read_network,
    reading,
    refuse_adapters,
)

NEVER_SAID = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
COORDINATES = {"qwen3_vl": "0-1000", "qwen2_5_vl": "pixels"}
"""Qwen3-VL speaks thousandths of the screen, Qwen2.5-VL pixels of the RESIZED image."""


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """Everything needed to sample from, score and train a vision-language policy."""

    model: Network
    """transformers' Qwen3-VL or Qwen2.5-VL for conditional generation."""
    tokenizer: Tokenizer
    """Its tokenizer, chat template included."""
    vision: Vision
    family: str
    """`qwen3_vl` or `qwen2_5_vl`."""
    coordinate_space: str
    """`0-1000` or `pixels`: the space its clicks are in."""
    forbidden_ids: tuple[int, ...]
    """Ids masked out of every distribution: a sampled image pad would crash the next turn."""
    stop_ids: tuple[int, ...]
    """Ids that end an answer; the sampled one belongs to the answer."""
    name: str = "policy"

    @property
    def image_token_id(self) -> int:
        return int(self.model.config.image_token_id)

    @property
    def merge(self) -> int:
        """Patches per image token along each side."""
        return int(self.model.config.vision_config.spatial_merge_size)

    @property
    def vocab_size(self) -> int:
        return int(self.model.config.text_config.vocab_size)

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def save(self, path: str | Path, *, weights: Mapping[str, Any] | None = None) -> Path:
        """Write config, safetensors, tokenizer, template and preprocessor to a folder.

        `weights`: tensors by name in place of the network's own. Without them it is refused while
        adapters are attached: their layers would be saved under names that no engine knows, and
        load as random numbers.
        """
        if weights is None:
            refuse_adapters(self.model, "loads the folder")
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        with quiet():
            self.model.save_pretrained(folder, state_dict=weights)
        share_like(folder / "config.json", weight_files(folder))
        self.tokenizer.save_pretrained(folder)
        self.vision.processor.save_pretrained(folder)
        return folder


def build_policy(shape: Shape, corpus: Corpus, *, seed: int, name: str = "small") -> Policy:
    """A new small policy: tokenizer trained on `corpus`, weights random from `seed`."""
    tokenizer = train_tokenizer(corpus)
    model = build_model(shape, tokenizer, seed=seed)
    return _assemble(model, tokenizer, Vision(build_processor()), name)


def load_policy(path: str | Path, *, dtype: str = "float32") -> Policy:
    """Load any Qwen3-VL or Qwen2.5-VL checkpoint folder, from disk only."""
    folder = Path(path)
    _check_folder(folder)
    model = read_network(folder, dtype=dtype)
    with reading(f"the tokenizer of {folder}"):
        tokenizer = load_tokenizer(folder)
    if not tokenizer.chat_template:
        raise LabError(
            f"{folder} has no chat template; add its chat_template.jinja, and its tokenizer where"
            " that is missing too (weights alone can be pushed to a server that runs, not started)"
        )
    return _assemble(speed_up(model), tokenizer, load_vision(folder), folder.resolve().name)


def share_like(model: Path, files: Iterable[Path]) -> None:
    """Give files the permissions of `model`: safetensors writes for its owner alone (0600), and an
    engine of another user could not read them."""
    mode = stat.S_IMODE(model.stat().st_mode)
    for file in files:
        file.chmod(mode)


def _assemble(model: Network, tokenizer: Tokenizer, vision: Vision, name: str) -> Policy:
    family = str(model.config.model_type)
    model.eval()
    return Policy(
        model=model,
        tokenizer=tokenizer,
        vision=vision,
        family=family,
        coordinate_space=COORDINATES[family],
        forbidden_ids=_forbidden(model, tokenizer),
        stop_ids=_stops(model, tokenizer),
        name=name,
    )


def _forbidden(model: Network, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Specials, and rows of the matrix that no token owns (checkpoints pad their vocabulary)."""
    unused = range(len(tokenizer), int(model.config.text_config.vocab_size))
    return tuple(sorted({*token_ids(tokenizer, NEVER_SAID), *unused}))


def _stops(model: Network, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The end of a turn, and whatever else the checkpoint's generation config ends on."""
    eos = model.generation_config.eos_token_id
    listed = eos if isinstance(eos, list) else [eos] if eos is not None else []
    return tuple(sorted({*token_ids(tokenizer, ("<|im_end|>",)), *listed}))


def _check_folder(folder: Path) -> None:
    config = folder / "config.json"
    if not config.is_file():
        raise LabError(f"{folder} is not a checkpoint: no config.json; give a Hugging Face folder")
    try:
        family = json.loads(config.read_text(encoding="utf-8-sig")).get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise LabError(f"{config} cannot be read as a JSON object: {error}") from error
    if family not in COORDINATES:
        known = ", ".join(COORDINATES)
        raise LabError(f"{folder} holds a model of type {family!r}; this lab drives {known}")


def load_vision(path: str | Path) -> Vision:
    """The image processor of a checkpoint folder, without its weights."""
    return Vision(_load_processor(Path(path)))


def _load_processor(folder: Path) -> Any:
    """The image processor by class: `AutoProcessor` would want torchvision.

    transformers 5 saves its settings inside processor_config.json, older ones in a file of their
    own; the class reads both.
    """
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    if not any((folder / name).is_file() for name in PROCESSOR_FILES):
        raise LabError(
            f"{folder} has neither {' nor '.join(PROCESSOR_FILES)}; copy one from the model's page"
        )
    with reading(f"the image processor of {folder}"):
        processor = Qwen2VLImageProcessorPil.from_pretrained(str(folder), local_files_only=True)
    return _with_edges(processor, folder)


def _with_edges(processor: Any, folder: Path) -> Any:
    """Bounds under the names that the processor's arithmetic reads.

    Configs also write them as `size: {min_pixels, max_pixels}`, which transformers takes and then
    cannot use.
    """
    size = processor.size
    said = {name: value for name, value in dict(size).items() if value is not None}
    low = said.get("shortest_edge", said.get("min_pixels"))
    high = said.get("longest_edge", said.get("max_pixels"))
    if low is None or high is None:
        raise LabError(
            f"the image processor of {folder} has size {said}; it needs shortest_edge and"
            " longest_edge (or min_pixels and max_pixels), in pixels of area"
        )
    processor.size = type(size)(shortest_edge=int(low), longest_edge=int(high))
    return processor
