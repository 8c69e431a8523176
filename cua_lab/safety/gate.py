"""The gate in front of a computer tool: it judges what a call does, asks where it must, and fails
closed.

    arguments ─parse─▶ Call ─recognise, judge─▶ allow ────────────────────▶ the tool, this very Call
                                                confirm ─ask─▶ yes, and the screen is the same ─▶ ┘
                                                │               no, no answer, nonsense ─▶ refusal
                                                deny ────────────────────────────────────▶ refusal

A refusal is a tool result: the policy reads why, and the episode goes on. Invariants: only the
checked `Call` that was judged is carried out; a `deny` reaches no confirmer; a `confirm` is carried
out only after an `Answer` that says so, to this question, on this screen.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import itertools
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mcp.types as mcp_types
from hud.agents.tools.base import AgentTool, tool_err
from hud.types import MCPToolResult

from cua_lab.computer.schema import Call, CallError
from cua_lab.computer.screenshot import scaled_screenshot
from cua_lab.computer.tool import ComputerTool
from cua_lab.desktop.screen_context import Looker, ScreenContext, looker_of, unknown
from cua_lab.errors import LabError
from cua_lab.safety.asking import ask
from cua_lab.safety.audit import AuditLog
from cua_lab.safety.confirmers import APPROVE, AlwaysDeny, Answer, Confirmer, Question
from cua_lab.safety.effects import Effect, recognise
from cua_lab.safety.history import History
from cua_lab.safety.judged import REFUSED, Judged, Outcome, Penalty
from cua_lab.safety.key_effects import text_of_chords
from cua_lab.safety.policy_file import Decision, SafetyPolicy
from cua_lab.safety.redaction import redact, redact_call
from cua_lab.safety.same_screen import same_frame

if TYPE_CHECKING:
    import numpy as np

    from cua_lab.computer.config import ToolConfig
    from cua_lab.computer.coordinates import View

LOOK_S = 2.0
"""A desktop that does not say what is on it within this is not known."""
ASKED_AT_MOST = 3
"""Times that a question is asked anew because the screen changed under it."""
SECRET = frozenset({"type_secret", "type_card"})


@dataclass(eq=False)
class Gate:
    """One policy and one confirmer, for any number of episodes; questions wait in a queue."""

    policy: SafetyPolicy
    confirmer: Confirmer = field(default_factory=AlwaysDeny)
    limit_s: float = 60.0
    """For one answer, from when it is asked."""
    audit: AuditLog | None = None
    penalty: Penalty = field(default_factory=Penalty)
    """What training takes off the reward of an episode."""
    _queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = field(
        default_factory=weakref.WeakKeyDictionary, repr=False
    )
    _numbers: Any = field(default_factory=lambda: itertools.count(1), repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.limit_s < float("inf"):
            raise LabError(f"the limit for an answer is a positive time; got {self.limit_s}")

    def on(
        self, tool: ComputerTool, *, episode: str = "episode", looker: Looker | None = None
    ) -> GatedTool:
        """The tool behind this gate, for one episode."""
        look = looker or looker_of(tool.client.capability.url)
        return GatedTool(self, tool, episode=episode, looker=look)

    @property
    def queue(self) -> asyncio.Lock:
        """Whose turn it is to ask; first come, first served, in each event loop."""
        return self._queues.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    def number(self) -> int:
        """The next question's."""
        return int(next(self._numbers))

    async def ask(self, question: Question) -> Answer:
        """The confirmer's answer, or a rejection that says why there is none."""
        return await ask(self.confirmer, question, limit_s=self.limit_s)


@dataclass(frozen=True, slots=True)
class _Look:
    """A call as it would meet the screen now."""

    call: Call
    context: ScreenContext
    effects: tuple[Effect, ...]
    decision: Decision


class GatedTool(AgentTool[Any]):
    """A computer tool behind a gate, for one episode."""

    name = ComputerTool.name
    client_type = ComputerTool.client_type

    def __init__(self, gate: Gate, inner: ComputerTool, *, episode: str, looker: Looker) -> None:
        super().__init__(spec=inner.spec, client=inner.client)
        self.gate, self.inner, self.episode = gate, inner, episode
        self.thought = ""
        """What the policy said before its call; whoever drives the tool sets it."""
        self.judged: list[Judged] = []
        """Every call of the episode with what became of it; without secrets."""
        self.secrets: set[str] = set()
        """What was typed in secret; kept in memory, for `redact`."""
        self._looker, self._history = looker, History()
        self._alike: set[tuple[tuple[str, str], ...]] = set()
        self._shown = ""  # hash of the screenshot that the policy saw last

    @property
    def view(self) -> View:
        """The desktop as the model sees it."""
        return self.inner.view

    @property
    def config(self) -> ToolConfig:
        """Of the tool inside."""
        return self.inner.config

    def to_params(self) -> Any:
        return self.inner.to_params()

    async def screenshot(self) -> MCPToolResult:
        """What the policy sees; looking is always allowed."""
        return self._remember(await self.inner.screenshot())

    async def execute(self, arguments: dict[str, Any]) -> MCPToolResult:
        """Judge one call and carry it out, or say why not."""
        arguments = copy.deepcopy(arguments)  # what is judged cannot be changed under the gate
        try:
            call = self.inner.parsed(arguments)
        except CallError as error:
            return tool_err(str(error))
        if call.action == "finish":
            return await self.inner.carry_out(call)
        look = await self._look(call)
        match look.decision.action:
            case "allow":
                return await self._do(look, "allowed", arguments)
            case "confirm":
                return await self._asked(look, arguments)
            case _:
                return self._refuse(look, "denied", arguments, look.decision.reason)

    # ─── looking ──────────────────────────────────────────────────────

    async def _look(self, call: Call) -> _Look:
        context = self._history.seen(await self._context(call))
        effects = recognise(call, context, self._history.typed)
        return _Look(
            call, context, effects, self.gate.policy.judge(effects, context, self._history)
        )

    async def _context(self, call: Call) -> ScreenContext:
        try:
            async with asyncio.timeout(LOOK_S):
                return await self._looker(call.at, call.to)
        except Exception as error:  # whatever goes wrong, the screen is not known
            return unknown(f"the desktop did not say what is on it ({type(error).__name__})")

    # ─── asking ───────────────────────────────────────────────────────

    async def _asked(self, look: _Look, arguments: dict[str, Any]) -> MCPToolResult:
        """Ask about an action, as often as the screen changes under the question."""
        async with self.gate.queue:
            for asked in range(1, ASKED_AT_MOST + 1):
                frame = (await self.inner.settled()).copy()
                look = await self._look(look.call)  # time has passed in the queue
                if look.decision.action == "deny":
                    return self._refuse(look, "denied", arguments, look.decision.reason)
                answer = await self._answer(look, arguments, frame, asked)
                if answer.verdict == "reject":
                    return self._refuse(look, "rejected", arguments, answer.why)
                if await self._same(look, frame):
                    return await self._approved(look, arguments, answer)
        why = f"the screen changed under the question {ASKED_AT_MOST} times"
        return self._refuse(look, "rejected", arguments, why)

    async def _answer(
        self, look: _Look, arguments: dict[str, Any], frame: np.ndarray, asked: int
    ) -> Answer:
        if look.decision.action == "allow" or _signature(look) in self._alike:
            return APPROVE
        question = Question(
            number=self.gate.number(),
            episode=self.episode,
            arguments=copy.deepcopy(arguments),
            effects=look.effects,
            decision=look.decision,
            screenshot=scaled_screenshot(frame, self.view.size),
            at=self._parts(look.call),
            thought=self.thought,
            limit_s=self.gate.limit_s,
            asked=asked,
        )
        return await self.gate.ask(question)

    def _parts(self, call: Call) -> tuple[tuple[float, float], ...]:
        width, height = self.inner.display_width, self.inner.display_height
        return tuple((p[0] / width, p[1] / height) for p in (call.at, call.to) if p is not None)

    async def _same(self, look: _Look, frame: np.ndarray) -> bool:
        """Whether the screen is the one that was asked about, in pixels and in meaning."""
        if not same_frame(frame, await self.inner.settled()):
            return False
        return await self._look(look.call) == look

    async def _approved(
        self, look: _Look, arguments: dict[str, Any], answer: Answer
    ) -> MCPToolResult:
        if answer.verdict == "edit":
            return await self._edited(answer.call or {}, answer)
        if answer.verdict == "approve_alike":
            self._alike.add(_signature(look))
        return await self._do(look, "approved", arguments, answer.why)

    async def _edited(self, given: Mapping[str, Any], answer: Answer) -> MCPToolResult:
        """Another call in the policy's place: judged anew, and never one that is denied."""
        arguments = copy.deepcopy(dict(given))
        try:
            look = await self._look(self.inner.parsed(arguments))
        except CallError as error:
            return _not_done(f"Not done: the confirmer's own call is wrong: {error}")
        if look.decision.action == "deny" or look.call.action == "finish":
            return self._refuse(look, "denied", arguments, look.decision.reason)
        result = await self._do(look, "edited", arguments, answer.why)
        note = f"Done instead, by the one who was asked: {redact(arguments, self.secrets)}"
        result.content.insert(0, mcp_types.TextContent(type="text", text=note))
        return result

    # ─── acting, and not ──────────────────────────────────────────────

    async def _do(
        self, look: _Look, outcome: Outcome, arguments: dict[str, Any], why: str = ""
    ) -> MCPToolResult:
        self._record(look, outcome, arguments, why)
        self._history.did(look.call, look.effects)
        self._history.counts[look.decision.risk] += 1
        return self._remember(await self.inner.carry_out(look.call))

    def _refuse(
        self, look: _Look, outcome: Outcome, arguments: dict[str, Any], why: str
    ) -> MCPToolResult:
        self._record(look, outcome, arguments, why)
        reason = (
            look.decision.reason
            if why in ("", look.decision.reason)
            else (f"{look.decision.reason}; {why}")
        )
        text = f"Not done ({outcome}). {reason}. Do the task in another way, or finish."
        return _not_done(str(redact(text, self.secrets)))

    def _record(self, look: _Look, outcome: Outcome, arguments: dict[str, Any], why: str) -> None:
        """Keep what was decided, before it is carried out: an action without a line cannot be."""
        kinds = {effect.kind for effect in look.effects}
        secret = bool(kinds & SECRET)
        if secret:
            text = text_of_chords(look.call.chords)
            self.secrets |= {text, text.strip(), (self._history.typed + text).strip()}
        judged = Judged(
            arguments=redact_call(arguments, self.secrets, typed=secret),
            kinds=tuple(sorted(kinds)),
            risk=look.decision.risk,
            action=look.decision.action,
            outcome=outcome,
            reason=redact(look.decision.reason, self.secrets),
            why=redact(why, self.secrets),
        )
        self.judged.append(judged)
        if self.gate.audit is not None:
            screen = {"episode": self.episode, "screenshot": self._shown}
            self.gate.audit.append(screen | judged.to_json())

    def _remember(self, result: MCPToolResult) -> MCPToolResult:
        images = [part.data for part in result.content if part.type == "image"]
        if images and self.gate.audit is not None:
            self._shown = hashlib.sha256(images[-1].encode()).hexdigest()
        return result


def _not_done(text: str) -> MCPToolResult:
    """An error for the policy to read, which is none of its call's."""
    result = tool_err(text)
    result.meta = {REFUSED: True}
    return result


def _signature(look: _Look) -> tuple[tuple[str, str], ...]:
    """What "all alike" means: the same effects on the same things."""
    return tuple((effect.kind, effect.detail) for effect in look.effects)
