"""One rank of the parity test: FSDP2 over gloo, the vision tower sharded as a unit of its own.

parity_worker.py RANK PORT CASE FOLDER        CASE: bare | dummy | checked
"""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from cua_lab.errors import LabError
from cua_lab.training.rank_parity import check_vision_parity
from cua_lab.training.ranks import Ranks

WIDTH = 8
MEETS = timedelta(minutes=8)
"""Until both have imported torch, on whatever machine."""
STALLS = timedelta(seconds=8)
"""Of a collective, where one is known to be waited for in vain."""


class Tiny(torch.nn.Module):
    """Text through one layer; images, where there are any, through a tower first."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = torch.nn.Linear(WIDTH, WIDTH)
        self.text = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, text: torch.Tensor, pixels: torch.Tensor | None) -> torch.Tensor:
        seen = 0 if pixels is None else self.tower(pixels).mean(0)
        return self.text(text + seen).square().mean()


def main(rank: int, port: str, case: str, folder: Path) -> None:
    torch.manual_seed(0)
    store = dist.TCPStore("127.0.0.1", int(port), 2, is_master=rank == 0, timeout=MEETS)
    timeout = STALLS if case == "bare" else MEETS
    dist.init_process_group("gloo", store=store, timeout=timeout, rank=rank, world_size=2)
    model = Tiny()
    fully_shard(model.tower)
    fully_shard(model.text)
    fully_shard(model)
    images = 0 if rank == 1 and case != "dummy" else 1
    said = "finished"
    try:
        if case == "checked":
            check_vision_parity(Ranks(rank, 2, rank, dist.group.WORLD), [1, images])
        pixels = torch.zeros(4, WIDTH) if images else None  # the dummy is black, too
        model(torch.ones(2, WIDTH), pixels).backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
    except LabError as error:
        said = f"refused: {error}"
    except Exception as error:
        said = f"stalled: {type(error).__name__}: {error}"
    (folder / f"{case}-{rank}.json").write_text(json.dumps(said))
    if rank == 0:  # the store is in this process: not before the other has no need of it
        store.wait(["other"], MEETS)
    else:
        store.set("other", "ended")
    os._exit(0)  # threads of a collective that hangs would keep the process


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]))
