"""A policy as it learns: on its device, in its arithmetic, whole, split, or by adapters alone.

    policy ──▶ Learner ──score──▶ log-probabilities with a gradient
                       ──plain──▶ every weight under its own name, merged and whole: for a push

FSDP2 is torch's `fully_shard`, which is what accelerate's own preparation calls; called here, the
code that two gloo processes prove on a CPU is the code that runs on GPUs (accelerate prepares no
FSDP on a CPU). Invariant: `plain` gives the tensors of a network without adapters and changes
nothing that learns, so whoever samples sees what was trained, and training never rounds to it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from cua_lab.policy.model import speed_up
from cua_lab.policy.policy import Policy
from cua_lab.policy.protocols import Network
from cua_lab.policy.scoring import Batch, Scores, score
from cua_lab.policy.weights import weights_for
from cua_lab.recipes.trainer_settings import TrainerSettings
from cua_lab.training.precision import Precision, precision_of, save_memory
from cua_lab.training.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from cua_lab.training.lora import Adapter

ADAPTER = "training/adapter"
"""Of a checkpoint whose plain weights are merged ones."""
PLAIN = TrainerSettings()


class Learner:
    """A policy with its device, arithmetic, adapters and processes."""

    def __init__(
        self,
        policy: Policy,
        settings: TrainerSettings = PLAIN,
        ranks: Ranks = ALONE,
        *,
        seed: int = 0,
    ) -> None:
        """`policy`'s own network is moved and changed; `seed` draws the first adapters, the same
        on every rank."""
        self.policy, self.settings, self.ranks = policy, settings, ranks
        index = None if ranks.alone else ranks.local
        self.precision = precision_of(
            settings.device, settings.precision, section="trainer", index=index
        )
        self.adapter: Adapter | None = None
        model = policy.model.eval()  # as the engine samples from it: no dropout on either side
        if settings.lora is not None:
            from cua_lab.training.lora import attach  # peft is an extra

            model.to(getattr(torch, self.precision.stored(frozen=True)))
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self.adapter = attach(policy, settings.lora)
        model.to(self.precision.device)
        if settings.gradient_checkpointing:
            save_memory(model)
        self._split = _split(policy, self.precision, ranks) if settings.shard else None

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Those that learn."""
        return [p for p in self.policy.model.parameters() if p.requires_grad]

    @property
    def device(self) -> torch.device:
        return torch.device(self.precision.device)

    def score(self, batch: Batch, loss_mask: Tensor, *, temperature: float) -> Scores:
        """What the policy as it learns thinks of the tokens at `loss_mask` (B, T)."""
        with self.precision.autocast, self._remembering():
            if self._split is None:
                return score(
                    self.policy, batch, loss_mask, temperature=temperature, float64_attention=True
                )
            return Scores(*self._split(batch, loss_mask, temperature))

    @contextlib.contextmanager
    def _remembering(self) -> Iterator[None]:
        """transformers drops activations in `train` mode only; Qwen-VL has no dropout."""
        if not (self.settings.gradient_checkpointing and torch.is_grad_enabled()):
            yield
            return
        self.policy.model.train()
        try:
            yield
        finally:
            self.policy.model.eval()

    def frozen(self, policy: Policy | None = None) -> Frozen:
        """The policy as it is now (or another one), to be compared with."""
        if policy is None and self.adapter is not None:
            return Frozen(self, self.adapter)  # the same network with its adapters off
        settings = dataclasses.replace(self.settings, lora=None, gradient_checkpointing=False)
        held = copied(policy or self.policy, self.plain() if self._split else None)
        held.model.requires_grad_(False)
        return Frozen(Learner(held, settings, self.ranks))

    # -- gradients ---------------------------------------------------------------------------

    @property
    def loss_scale(self) -> float:
        """What a loss is multiplied with so that gradients add up: FSDP takes their mean."""
        return float(self.ranks.count) if self._split is not None else 1.0

    def add_up(self) -> None:
        """The gradient of the whole batch on every rank; of split weights it is that already."""
        if self.ranks.alone or self._split is not None:
            return
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.ranks.add_up([p.grad for p in self.parameters if p.grad is not None])

    def clip(self, most: float) -> float:
        """Clip the gradient's norm; returns it as it was before. Raises where it is not finite."""
        if self._split is None:
            norm = nn.utils.clip_grad_norm_(
                self.policy.model.parameters(), most, error_if_nonfinite=True
            )
            return float(norm)
        grads = [p.grad for p in self.parameters if p.grad is not None]
        total = whole(nn.utils.get_total_norm(grads, error_if_nonfinite=False))
        if not bool(torch.isfinite(total)):
            raise RuntimeError(f"the gradient's norm is {float(total)}; nothing was updated")
        nn.utils.clip_grads_with_norm_(self.parameters, most, total)
        return float(total)

    # -- weights -----------------------------------------------------------------------------

    def plain(self) -> Iterator[tuple[str, Tensor]]:
        """Each weight by its name in a network without adapters, merged and whole, one at a time.

        Of split weights it is an order to all ranks: each takes every value.
        """
        if self.adapter is not None:
            yield from self.adapter.merged()
            return
        for name, tensor in named_weights(self.policy.model):
            yield name, whole(tensor.detach())

    def take_over(self, served: Policy) -> None:
        """Give a plain policy of the same network the weights as they are now."""
        own = served.model.state_dict()
        with torch.no_grad():
            for name, tensor in self.plain():
                own[name].copy_(tensor, non_blocking=False)

    def save(self, folder: Path) -> None:
        """A plain checkpoint folder, and the adapters apart where there are some."""
        if self.adapter is None and self._split is None:
            self.policy.save(folder)
            return
        self.policy.save(folder, weights=dict(self.plain()))
        if self.adapter is not None:
            self.adapter.save(folder / ADAPTER)

    def load(self, folder: Path) -> None:
        """Weights of `save`, in place: with any number of processes, and only if they fit."""
        if self.adapter is not None:
            self.adapter.load(folder / ADAPTER)
            return
        found = weights_for(self.policy.model, folder)
        if self._split is None:
            self.policy.model.load_state_dict(found)
            return
        with torch.no_grad():
            for name, own in named_weights(self.policy.model):
                put(own, found[name])


class Frozen:
    """A policy that is compared with and does not learn."""

    def __init__(self, learner: Learner, adapter: Adapter | None = None) -> None:
        self._learner, self._adapter = learner, adapter

    @torch.no_grad()
    def score(self, batch: Batch, loss_mask: Tensor, *, temperature: float) -> Tensor:
        """Log-probabilities (B, T)."""
        off = contextlib.nullcontext() if self._adapter is None else self._adapter.off()
        with off:
            return self._learner.score(batch, loss_mask, temperature=temperature).logprobs


class Scorer(nn.Module):
    """`score` as the forward pass of one module: FSDP gathers weights around a root's forward."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.network = cast("nn.Module", policy.model)
        self._policy = policy

    def forward(self, batch: Batch, loss_mask: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        found = score(
            self._policy, batch, loss_mask, temperature=temperature, float64_attention=True
        )
        return found.logprobs, found.entropy


def named_weights(model: Network) -> Iterator[tuple[str, Tensor]]:
    """What a checkpoint holds, each matrix once: tied ones under their first name."""
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor


def copied(policy: Policy, weights: Iterator[tuple[str, Tensor]] | None = None) -> Policy:
    """The same policy with a network of its own; `weights` where its own cannot be copied."""
    if weights is None:
        return dataclasses.replace(policy, model=copy.deepcopy(policy.model).eval())
    network: Any = type(policy.model)
    # speed_up changed the classes of layers, not the network's: it is built anew from its config.
    model = network(copy.deepcopy(policy.model.config)).to(policy.model.dtype)
    own = model.state_dict()
    with torch.no_grad():
        for name, tensor in weights:
            own[name].copy_(tensor)
    model.generation_config = copy.deepcopy(policy.model.generation_config)
    return dataclasses.replace(policy, model=speed_up(model).eval())


def whole(tensor: Tensor) -> Tensor:
    """A tensor of which each rank holds a part, put together on every rank; others as they are."""
    full: Any = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()


def put(own: Tensor, value: Tensor) -> None:
    """Write a whole value into a tensor, or into the part of it that this rank holds."""
    mesh: Any = getattr(own, "device_mesh", None)
    if mesh is None:
        own.copy_(value)
        return
    from torch.distributed.tensor import distribute_tensor

    there = value.to(device=own.device, dtype=own.dtype)
    own.copy_(distribute_tensor(there, mesh, own.placements, src_data_rank=None))  # type: ignore[attr-defined]


def _split(policy: Policy, precision: Precision, ranks: Ranks) -> nn.Module:
    """Split the weights over the ranks, a layer at a time."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    kinds = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if precision.bfloat16
        else MixedPrecisionPolicy()
    )
    mesh = init_device_mesh(precision.device.partition(":")[0], (ranks.count,))
    scorer = Scorer(policy)
    for layer in _layers(policy.model):
        fully_shard(layer, mesh=mesh, mp_policy=kinds)
    return cast("nn.Module", fully_shard(scorer, mesh=mesh, mp_policy=kinds))


def _layers(model: Network) -> list[nn.Module]:
    body = model.model
    return [*body.visual.blocks, *body.language_model.layers]
