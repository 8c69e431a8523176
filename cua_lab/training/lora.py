"""Low-rank adapters through `peft`: put on, kept apart, merged away.

An `Adapter` is a policy whose linear layers carry low-rank updates: the policy's own network object
holds them, so whoever scores with the policy sees them. Invariant: `merge` leaves a plain network
with the same tensor names as before, whose log-probabilities are those of the adapted one up to
rounding (1e-5 in float32), so any engine serves it; only a merged policy may be exported.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cua_lab.errors import LabError
from cua_lab.recipes.sft_recipe import LoraSettings

if TYPE_CHECKING:
    from cua_lab.policy.policy import Policy

WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """Adapters on a policy's network."""

    policy: "Policy"
    peft_model: Any
    """peft.PeftModel around the policy's network."""

    def save(self, folder: str | Path) -> Path:
        """The adapter alone, as `peft` loads it."""
        self.peft_model.save_pretrained(str(folder))
        return Path(folder)

    def load(self, folder: str | Path) -> None:
        """Weights of `save`, in place."""
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        path = Path(folder, WEIGHTS)
        if not path.is_file():
            raise LabError(f"{folder} has no {WEIGHTS}; it was not left by a LoRA training")
        found: Any = set_peft_model_state_dict(self.peft_model, load_file(path))
        if found.unexpected_keys:
            raise LabError(
                f"{path} has {len(found.unexpected_keys)} tensors that this adapter has not, first"
                f" {found.unexpected_keys[0]!r}; resume with the recipe it was made with"
            )

    def merge(self) -> None:
        """Add the updates to the weights and take the adapters off; there is no way back."""
        self.peft_model.merge_and_unload()


def attach(policy: "Policy", settings: LoraSettings) -> Adapter:
    """Put fresh adapters on a policy; only they can learn from now on. They start as no change."""
    try:
        from peft import LoraConfig, get_peft_model
    except ModuleNotFoundError as error:
        raise LabError("LoRA needs peft: pip install 'cua-lab[sft]'") from error
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
            return Adapter(policy, get_peft_model(policy.model, config))
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
