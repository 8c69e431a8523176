"""The one door for weights: a network read from a folder, or new weights for one that is at work.

    read_network(folder)         a network with every weight from the folder
    weights_for(model, folder)   the same as a state dict that `model` can take over
    check_fit(own, found, ...)   two sets of named tensors, one against the other

transformers fills a name that it does not find with random numbers and says so in a report. Here
the report is read. Invariant: every weight that leaves this module comes from the file, has the
network's name and shape, is a finite number, and nothing in the file was left over; otherwise one
`LabError` names how many tensors differ and the first, and nothing was changed.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cua_lab.errors import LabError
from cua_lab.policy.protocols import Network
from cua_lab.policy.weight_files import check_files, refuse_misfit, stored

MEANING = {
    "text_config": (
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rms_norm_eps",
        "rope_parameters",
        "hidden_act",
    ),
    "vision_config": (
        "num_heads",
        "patch_size",
        "spatial_merge_size",
        "deepstack_visual_indexes",
        "fullatt_block_indexes",
        "window_size",
        "hidden_act",
    ),
}
"""Settings that change what equal tensors compute."""


def read_network(folder: Path, *, dtype: str, config: Any = None) -> Any:
    """transformers' network of a checkpoint folder; `config` stands in for the folder's own."""
    import transformers
    from transformers import AutoModelForImageTextToText

    check_files(folder)
    loader: Any = AutoModelForImageTextToText
    no_defaults: Any = transformers.GenerationConfig
    given: dict[str, Any] = {}
    if config is not None:  # then there may be no file to read either of them from
        given = {"config": copy.deepcopy(config), "generation_config": no_defaults()}
    with reading(str(folder)), quiet():
        model, report = loader.from_pretrained(
            str(folder),
            dtype=dtype,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are in the report, in words below
            **given,
        )
    _check_report(folder, model, report)
    _check_tied(folder, model)
    _check_finite(folder, model.state_dict())
    return model


def weights_for(model: Network, folder: Path) -> dict[str, Tensor]:
    """A folder's weights under the names of `model`, checked against it; `model` is not touched.

    The folder needs no tokenizer and, as for sglang, no config: trainers sync the tensors alone.
    """
    refuse_adapters(model, "takes over new weights")
    _check_meaning(folder, model.config)
    dtype = str(model.dtype).removeprefix("torch.")
    found: dict[str, Tensor] = read_network(folder, dtype=dtype, config=model.config).state_dict()
    check_fit(model.state_dict(), found, folder)
    return found


def check_fit(own: Mapping[str, Tensor], found: Mapping[str, Tensor], source: Path) -> None:
    """Refuse tensors whose names, shapes or numbers are not those of `own`."""
    missing, unexpected = own.keys() - found.keys(), found.keys() - own.keys()
    misshapen = {
        name: (found[name].shape, own[name].shape)
        for name in own.keys() & found.keys()
        if found[name].shape != own[name].shape
    }
    refuse_misfit(source, len(own), missing, unexpected, misshapen)
    for name, tensor in found.items():
        if tensor.is_floating_point() != own[name].is_floating_point():
            raise LabError(
                f"{source} does not fit: {name} is {tensor.dtype}, not {own[name].dtype}"
            )
    _check_finite(source, found)


def refuse_adapters(model: Network, what: str) -> None:
    """Adapters that are not merged are seen by nobody who reads weights by name."""
    wrapped = [name for name, module in model.named_modules() if hasattr(module, "base_layer")]
    if wrapped:
        raise LabError(
            f"{len(wrapped)} layers of the policy carry adapters, first {wrapped[0]!r}, and whoever"
            f" {what} would see the layers without them; merge the adapters first (Adapter.merge)"
        )


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """One line for a file that a library cannot read: its parsers raise whatever they meet."""
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        words = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise LabError(
            f"{what} cannot be loaded: {type(error).__name__}: {' '.join(words)[:300]}"
        ) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No loading bar for a model that loads in 20 ms, and no report that is read here anyway."""
    import transformers

    logging: Any = transformers.utils.logging
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def _check_report(folder: Path, model: Network, report: Mapping[str, Any]) -> None:
    misshapen = {name: (found, own) for name, found, own in report["mismatched_keys"]}
    missing = set(report["missing_keys"]) - misshapen.keys()
    count = len(model.state_dict())
    refuse_misfit(folder, count, missing, set(report["unexpected_keys"]), misshapen)
    if report.get("error_msgs"):
        raise LabError(f"{folder} cannot be loaded: {report['error_msgs'][0]}")


def _check_tied(folder: Path, model: Network) -> None:
    """A file with two matrices where the config says one: engines would drop the second."""
    if not bool(getattr(model.config, "tie_word_embeddings", False)):
        return
    found = stored(folder, ("lm_head.weight", "embed_tokens.weight"))
    if len(found) < 2:
        return
    head, table = found["lm_head.weight"].float(), found["embed_tokens.weight"].float()
    if head.shape != table.shape or not torch.equal(head, table):
        raise LabError(
            f"{folder} does not fit: tie_word_embeddings is set, but the file holds lm_head.weight"
            " and embed_tokens.weight, and they differ: an engine would drop one of them; set"
            " tie_word_embeddings to false in the config of the policy and of the file, or save"
            " them tied; nothing was changed"
        )


def _check_finite(source: Path, tensors: Mapping[str, Tensor]) -> None:
    bad = [
        name
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all())
    ]
    if bad:
        raise LabError(
            f"{source} does not fit: {len(bad)} of {len(tensors)} tensors hold NaN or infinity,"
            f" first {min(bad)!r}; nothing was changed"
        )


def _check_meaning(folder: Path, served: Any) -> None:
    """Equal shapes can mean another network: heads, rotary base, taps of the vision tower."""
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        return
    with reading(f"{folder}/config.json"), quiet():
        found = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    if found.model_type != served.model_type:
        raise LabError(
            f"{folder} holds a {found.model_type}, the policy is a {served.model_type}; nothing was"
            " changed"
        )
    for part, names in MEANING.items():
        ours, theirs = getattr(served, part), getattr(found, part)
        for name in names:
            old, new = getattr(ours, name, None), getattr(theirs, name, None)
            if not _same(old, new):
                raise LabError(
                    f"{folder} does not fit: {part}.{name} is {new}, the policy has {old}; the same"
                    " tensors would compute something else; nothing was changed"
                )


def _same(old: Any, new: Any) -> bool:
    """Equal where both say something."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return all(_same(old[name], new[name]) for name in old.keys() & new.keys())
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return list(old) == list(new)
    return old is None or new is None or bool(old == new)
