"""Low-rank adapters through `peft`: put on, kept apart, merged away.

An `Adapter` is a policy whose linear layers carry low-rank updates: the policy's own network object
holds them, so scoring with the policy sees them. Invariant: `merge` leaves a plain network
with the same tensor names as before, whose log-probabilities are those of the adapted one up to
rounding (1e-5 in float32), so any engine serves it; only a merged policy may be exported.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cua_lab.errors import LabError
from cua_lab.policy.policy import share_like
from cua_lab.policy.protocols import Network
from cua_lab.policy.weights import check_fit
from cua_lab.recipes.trainer_settings import LoraSettings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cua_lab.policy.policy import Policy

MERGE_GAP = {True: 1e-3, False: 0.5}
"""Nats, in float32 and in half precision."""
WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """Adapters on a policy's network."""

    policy: Policy
    peft_model: Any
    """peft.PeftModel around the policy's network."""

    def save(self, folder: str | Path) -> Path:
        """The adapter alone, as `peft` loads it."""
        path = Path(folder)
        self.peft_model.save_pretrained(str(path))
        share_like(path / "adapter_config.json", [path / WEIGHTS])
        return path

    def load(self, folder: str | Path) -> None:
        """Weights of `save`, in place; what does not fit changes nothing."""
        from peft import get_peft_model_state_dict, set_peft_model_state_dict
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = Path(folder, WEIGHTS)
        if not path.is_file():
            raise LabError(f"{folder} has no {WEIGHTS}; it was not left by a LoRA training")
        try:
            found = load_file(path)
            check_fit(get_peft_model_state_dict(self.peft_model), found, path)
        except (SafetensorError, OSError) as error:
            raise LabError(f"{path} is torn or no safetensors file: {error}") from error
        except LabError as error:
            raise LabError(f"{error}; resume with the recipe the adapter was made with") from error
        set_peft_model_state_dict(self.peft_model, found)

    def merged(self) -> Iterator[tuple[str, Tensor]]:
        """The weights of the plain network, one at a time, each with its update added in float32
        and stored as the network stores it; nothing here changes."""
        updates: dict[str, Any] = {
            f"{name.removesuffix('.base_layer')}.weight": module
            for name, module in self.policy.model.named_modules()
            if hasattr(module, "get_delta_weight")
        }
        seen: set[int] = set()
        for full, tensor in self.policy.model.state_dict(keep_vars=True).items():
            name = full.replace(".base_layer.", ".")
            if ".lora_" in full or id(tensor) in seen:
                continue
            seen.add(id(tensor))
            weight = tensor.detach()
            if name in updates:
                delta = updates[name].get_delta_weight("default").detach()
                weight = (weight.float() + delta.float()).to(weight.dtype)
            yield name, weight

    def off(self) -> AbstractContextManager[None]:
        """The policy without its updates, for as long as the context lasts."""
        context: AbstractContextManager[None] = self.peft_model.disable_adapter()
        return context

    def merge(self) -> None:
        """Add the updates to the weights and take the adapters off; there is no way back."""
        self.peft_model.merge_and_unload()

    def merge_checked(self, probe: Callable[[], Tensor]) -> None:
        """`merge`, with log-probabilities of one row taken before and after.

        They may differ by rounding: 1e-5 in float32; in bfloat16 the merged weights are rounded to
        8 bits, which moved single tokens by up to 0.13.
        """
        before = probe()
        self.merge()
        gap = float((probe() - before).abs().max())
        allowed = MERGE_GAP[self.policy.model.dtype.itemsize >= 4]
        if not gap <= allowed:  # NaN fails too
            raise LabError(
                f"merging the adapters moved a log-probability of the first row by {gap:.3g}"
                f" (allowed {allowed}): the merged policy is not the one that was trained, so it is"
                " not exported; the adapter alone is saved. Do targets name a layer whose matrix"
                " another layer shares?"
            )


def attach(policy: Policy, settings: LoraSettings) -> Adapter:
    """Put fresh adapters on a policy; only they can learn from now on. They start as no change."""
    try:
        from peft import LoraConfig, get_peft_model
    except ModuleNotFoundError as error:
        raise LabError("LoRA needs peft: pip install 'cua-lab[sft]'") from error
    _refuse_shared(policy.model, settings.targets)
    # The patch embedding's projection is read by its weight, so that an update would never be seen.
    kept_out = r".*patch_embed.*" if settings.vision else r".*(patch_embed|visual\.).*"
    config = LoraConfig(
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.targets),
        exclude_modules=kept_out,
    )
    try:
        with warnings.catch_warnings():  # peft asks transformers by a name that v6 drops
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            return Adapter(policy, get_peft_model(cast("nn.Module", policy.model), config))
    except ValueError as error:
        linear = sorted(
            {
                name.rpartition(".")[2]
                for name, module in policy.model.named_modules()
                if type(module).__name__ == "Linear"
            }
        )
        raise LabError(
            f"lora.targets {list(settings.targets)} fit no layer of this policy; its linear layers"
            f" are called {', '.join(linear)}"
        ) from error


def _refuse_shared(model: Network, targets: tuple[str, ...]) -> None:
    """An adapter on one of two tied layers would be merged into the matrix of both."""
    owners: dict[int, list[str]] = {}
    for name, module in _with_matrices(model):
        owners.setdefault(id(module.weight), []).append(name)
    for name, module in _with_matrices(model):
        sharing = owners[id(module.weight)]
        if len(sharing) > 1 and any(name == t or name.endswith("." + t) for t in targets):
            others = ", ".join(other for other in sharing if other != name)
            raise LabError(
                f"lora.targets name {name!r}, whose matrix is that of {others} too (tied"
                " embeddings): merging would change both; leave it out, or untie them in the"
                " checkpoint (tie_word_embeddings: false, with an lm_head.weight of its own)"
            )


def _with_matrices(model: Network) -> Iterator[tuple[str, Any]]:
    for name, module in model.named_modules():
        if getattr(module, "weight", None) is not None:
            yield name, module
