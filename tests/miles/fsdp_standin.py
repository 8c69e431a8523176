"""Miles' FSDP trainer as far as positions go: one micro-batch packed, padded, and put to the model.

Written after its behaviour (miles 31f1ca9): tokens in a row, padded with 0 to a multiple; numbers
0, 1, 2, ... for each sample as positions; every multimodal input joined along axis 0; and the
model's arguments updated with them. Where `miles` can be imported, its own `get_batch` runs too.
"""

import contextlib
import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cua_lab.policy.policy import Policy


def packed_by_the_standin(samples: list[Any], multiple: int) -> dict[str, Any]:
    """What the model is called with."""
    tokens = [torch.tensor(sample.tokens) for sample in samples]
    row = torch.cat(tokens)
    spare = -len(row) % multiple
    numbers = torch.cat([torch.arange(len(one)) for one in tokens])
    arguments: dict[str, Any] = {
        "input_ids": torch.nn.functional.pad(row, (0, spare))[None],
        "position_ids": torch.nn.functional.pad(numbers, (0, spare))[None],
    }
    inputs = [sample.multimodal_train_inputs for sample in samples]
    joined = {name: torch.cat([one[name] for one in inputs]) for name in inputs[0]}
    return {**arguments, "attention_mask": None, **joined}


def packed_by_miles(samples: list[Any], multiple: int) -> dict[str, Any]:
    """The same through Miles' own code; CUDA's device is the CPU here."""
    data = importlib.import_module("miles.backends.training_utils.data")
    alone = SimpleNamespace(rank=0, size=1)
    batch = {
        "tokens": [torch.tensor(sample.tokens) for sample in samples],
        "loss_masks": [torch.tensor(sample.loss_mask) for sample in samples],
        "total_lengths": [len(sample.tokens) for sample in samples],
        "response_lengths": [sample.response_length for sample in samples],
        "multimodal_train_inputs": [sample.multimodal_train_inputs for sample in samples],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "get_parallel_state", lambda: SimpleNamespace(tp=alone, cp=alone))
        patch.setattr("miles.backends.training_utils.cp_utils.get_parallel_state",
                      lambda: SimpleNamespace(tp=alone, cp=alone))  # fmt: skip
        patch.setattr(torch.Tensor, "cuda", lambda tensor, *_, **__: tensor)
        made = data.get_batch(
            data.DataIterator(batch, micro_batch_size=len(samples)),
            list(batch),
            multiple,
            get_position_ids=True,
        )
    arguments = {"input_ids": made["tokens"], "position_ids": made["position_ids"]}
    return {**arguments, "attention_mask": None, **made["multimodal_train_inputs"]}


def packers() -> list[Any]:
    """The stand-in, and Miles' own code where it can be imported."""
    found = [pytest.param(packed_by_the_standin, id="stand-in")]
    with contextlib.suppress(ImportError):
        importlib.import_module("miles.backends.training_utils.data")
        found.append(pytest.param(packed_by_miles, id="miles"))
    return found


def logprobs(policy: Policy, arguments: dict[str, Any], sample: Any) -> torch.Tensor:
    """Of the response's tokens, (response_length,), in float32. Without the ids that the engine
    never says: Miles leaves them in, .003 of the probability of this small policy."""
    with torch.inference_mode():
        logits = policy.model(**arguments).logits[0, : len(sample.tokens) - 1]
    logits = logits.index_fill(1, torch.tensor(policy.forbidden_ids), -torch.inf)
    chosen = torch.log_softmax(logits, -1).gather(-1, torch.tensor(sample.tokens)[1:, None])[:, 0]
    return chosen[-sample.response_length :]
