"""An inference server outside the process, with the face of the embedded engine.

    policy ──save──▶ pushes/push-000012 ──update_weights──▶ vLLM or sglang (url, or launched here)

A run calls `weights_updated` after each step, as it does with the embedded engine; here that writes
the policy into a folder of its own and has the server take it over. Invariant: when
`weights_updated` returns, the server answers with the policy's weights and has nothing cached of
older ones. A server that was launched here and died is started again with the newest weights.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import httpx

from cua_lab.engine.sequences import EngineStats
from cua_lab.errors import LabError
from cua_lab.serving.launch import KINDS, EngineProcess, launched
from cua_lab.serving.live_weights import update_weights, weights_client

if TYPE_CHECKING:
    from cua_lab.policy.policy import Policy

Dialect = Literal["vllm", "sglang"]
LONGEST = 32768
"""Tokens of context that are asked for, where the policy was made for more."""


class OutsideEngine:
    """A server of vLLM or sglang that samples for a run."""

    def __init__(
        self,
        policy: Policy,
        kind: Dialect,
        folder: Path,
        *,
        url: str | None = None,
        name: str | None = None,
        max_batch: int | None = None,
        flags: tuple[str, ...] = (),
        keep: int = 2,
        back_s: float = 60.0,
        say: Callable[[str], None] = print,
    ) -> None:
        """Start a server with the policy, or push it to the one at `url` (ends before `/v1`).

        `folder` gets a folder of weights for each push, of which the newest `keep` stay; the server
        must be able to read them. `name` is what requests call the model; by default what the
        server at `url` lists first. `flags` are the launched engine's own. `back_s`: how long a
        server at `url` that went away is waited for.
        """
        self.policy, self.dialect = policy, kind
        self.stats = EngineStats()
        """Stays empty: the server does not tell its seconds."""
        self.weight_version = "start"
        self.url = "" if url is None else url.rstrip("/").removesuffix("/v1")
        self.name = name or ""
        self._launches = url is None
        self._max_batch, self._flags, self._say = max_batch, flags, say
        self._keep, self._back_s = max(1, keep), back_s
        self._folder = folder
        self._process: EngineProcess | None = None
        self._running = ExitStack()
        self._served = self._write()
        if self._launches:
            self._launch()
        else:
            self.name = self.name or self._first_name()
            self._push(self._served, previous=None)

    def weights_updated(self, version: str) -> None:
        """Have the server take over the policy as it is now, under this name."""
        folder = self._write()
        self.weight_version = version
        try:
            self._push(folder, previous=self._served)
        except LabError:
            if not self._died():
                raise
            self._served = folder
            self._launch()
        self._served = folder
        self._prune()

    def revive(self) -> bool:
        """Bring a server that has gone away back with the newest weights; whether it had."""
        if self._answers():
            return False
        if self._launches:
            self._launch()
            return True
        deadline = time.monotonic() + self._back_s
        while not self._answers():
            if time.monotonic() > deadline:
                raise LabError(
                    f"{self.url} went away and did not come back within {self._back_s:.0f} s; start"
                    " it again and go on with --resume"
                )
            time.sleep(0.5)
        self._push(self._served, previous=None)
        return True

    def close(self) -> None:
        """Stop a server that was launched here; one at a URL goes on."""
        self._running.close()

    # -- weights -----------------------------------------------------------------------------

    def _write(self) -> Path:
        """The policy in a new folder: beside its place, then renamed into it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        target = self._folder / f"push-{self._next():06d}"
        partial = target.with_name("." + target.name)
        shutil.rmtree(partial, ignore_errors=True)
        self.policy.save(partial)
        return partial.rename(target)

    def _next(self) -> int:
        numbers = [int(path.name.removeprefix("push-")) for path in self._pushes()]
        return max(numbers, default=-1) + 1

    def _pushes(self) -> list[Path]:
        return sorted(self._folder.glob("push-[0-9]*"))

    def _prune(self) -> None:
        for path in self._pushes()[: -self._keep]:
            shutil.rmtree(path)

    def _push(self, folder: Path, *, previous: Path | None) -> None:
        with weights_client(self.url) as client:
            update_weights(client, self.dialect, folder, self.weight_version, previous=previous)

    # -- the server --------------------------------------------------------------------------

    def _launch(self) -> None:
        self._running.close()
        text = self.policy.model.config.text_config
        self._process = self._running.enter_context(
            launched(
                KINDS[self.dialect],
                self._served,
                name=self.name or "policy",
                context_length=min(int(text.max_position_embeddings), LONGEST),
                max_batch=self._max_batch,
                arguments=self._flags,
                say=self._say,
            )
        )
        self.url, self.name = self._process.url, self._process.model or self.name
        if self.dialect == "sglang":  # it starts under "default"; turns are checked by version
            self._push(self._served, previous=None)

    def _died(self) -> bool:
        return self._process is not None and self._process.process.poll() is not None

    def _answers(self) -> bool:
        if self._died():
            return False
        with weights_client(self.url, timeout_s=10) as client:
            try:
                return client.get("/health").status_code == 200
            except httpx.HTTPError:
                return False

    def _first_name(self) -> str:
        with weights_client(self.url, timeout_s=30) as client:
            try:
                return str(client.get("/v1/models").json()["data"][0]["id"])
            except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
                raise LabError(
                    f"{self.url}/v1/models does not say which model is served ({error!r}); is the"
                    f" server running? Start one with `cua-lab serve --engine {self.dialect}`, or"
                    " leave engine.url out to have it launched"
                ) from error
