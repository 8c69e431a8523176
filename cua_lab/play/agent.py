"""The agent: HUD's chat-completions loop with one tool, the screen.

    prompt (+ first screenshot) -> model -> computer call -> screenshot -> model -> ...

What it adds to HUD's `OpenAIChatAgent`:
- the first screenshot is appended to the task's message, so that a task of one turn is possible;
- a `finish` call that is alone in its turn ends the episode (HUD's loop stops where a step is
  `done`; the call is not sent to the tool);
- an env may publish the turns of an episode (`bindings["screen"]["turns"]` of its start frame); the
  smaller of that and `max_steps` counts;
- it never needs a HUD key and, unless told otherwise, never uses one.

Invariant: an agent is stateless per run, so one instance drives many episodes at a time.
"""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import mcp.types as mcp_types
from hud.agents.openai_compatible import OpenAIChatAgent
from hud.agents.types import AgentStep, OpenAIChatConfig
from hud.types import Step
from pydantic import Field, InstanceOf

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.schema import NAME, CallError, parse_call
from cua_lab.computer.screen import connect
from cua_lab.computer.tool import ComputerTool
from cua_lab.hud_quirks import forget_hud_account, silence_cancelled_streams
from cua_lab.pictures import data_url_of
from cua_lab.safety.gate import GatedTool
from cua_lab.serving.sampling_request import sampling_request

if TYPE_CHECKING:
    from hud.agents.tool_agent import RunState
    from hud.eval.run import Run
    from openai.types.chat import ChatCompletionMessageParam

    from cua_lab.recipes.settings import AgentSettings

SCREEN = "screen"
SYSTEM_PROMPT = """\
You use a computer through its screen. After each action you are shown the screen again.
Turns are scarce, keystrokes are not: do as much as you safely can in every turn. Press many keys \
in one call when you know what they will do, and type whole texts at once. Do not take a \
screenshot only to look; every action returns one.
When the task is done, call finish, alone in its turn."""

SHORT_SYSTEM_PROMPT = "Use the screen. Turns are scarce, keys are not."
"""For the small policy: every token of the prompt is paid for in each turn."""


FOCUS_PROMPT = "Keys go to whatever has the focus: click it before you type or press."
"""One more line where `ToolConfig.focus_click` is on."""


def system_prompt(*, short: bool, tool: ToolConfig) -> str:
    """What the agent says before everything else."""
    prompt = SHORT_SYSTEM_PROMPT if short else SYSTEM_PROMPT
    return f"{prompt}\n{FOCUS_PROMPT}" if tool.focus_click else prompt


class LabAgentConfig(OpenAIChatConfig):
    """HUD's config and what the lab adds."""

    model_name: str = "cua-lab"
    model: str = "cua-lab"
    system_prompt: str | None = SYSTEM_PROMPT
    tool: InstanceOf[ToolConfig] = Field(default_factory=ToolConfig, exclude=True)
    first_screenshot: bool = True
    use_hud_account: bool = False
    """Whether HUD may use an API key that it finds: telemetry and tracing on its platform."""
    gate: Any = Field(default=None, exclude=True)  # Gate | None: pydantic cannot say it
    """What stands in front of the tool; `None` is nothing."""
    seat: Any = Field(default=None, exclude=True)  # GateSeat | None
    """This episode's at the gate; `play` makes it."""


def agent_config(
    agent: AgentSettings,
    tool: ToolConfig,
    *,
    model: str,
    **sampling: Any,
) -> LabAgentConfig:
    """From settings to what drives an episode; every path to a policy's config goes through here.

    `sampling` are arguments of `sampling_request` that differ from the settings: other limits, no
    token ids, more options.
    """
    request = {"temperature": agent.temperature, "max_tokens": agent.max_tokens, "token_ids": True}
    return LabAgentConfig(
        model=model,
        system_prompt=system_prompt(short=agent.short_prompt, tool=tool),
        tool=tool,
        first_screenshot=agent.first_screenshot,
        max_steps=agent.max_turns,
        stop_on=set(agent.stop_on),
        completion_kwargs=sampling_request(**(request | sampling)),
    )


class LabAgent(OpenAIChatAgent):
    """Drives one screen; construct it with a `LabAgentConfig` that has a `model_client`."""

    config_cls = LabAgentConfig
    config: LabAgentConfig
    tool_catalog = (ComputerTool,)  # type: ignore[assignment]

    def __init__(self, config: LabAgentConfig | None = None) -> None:
        config = config or LabAgentConfig()
        if not config.use_hud_account:
            forget_hud_account()
        super().__init__(config)

    async def __call__(self, run: Run) -> None:
        # HUD's own version connects to all that an env offers, with no time limit.
        silence_cancelled_streams(asyncio.get_running_loop())
        screen = await connect(run.client, timeout_s=self.config.tool.screen_timeout_s)
        try:
            state = await self._initialize_state(prompt=run.prompt_messages)
            state.tools, state.params = await self._build_tools({SCREEN: screen})
            if self.config.seat is not None:
                inner = state.tools[NAME]
                assert isinstance(inner, ComputerTool)
                state.tools[NAME] = self.config.seat.wrap(inner)
            await self._loop(run, state)
        finally:
            await screen.close()

    async def _loop(self, run: Run, state: RunState[ChatCompletionMessageParam]) -> None:
        if self.config.first_screenshot:
            await _append_screenshot(run, state)
        turns = run.bindings.get(SCREEN, {}).get("turns")
        agent = self if turns is None else self._limited_to(int(turns))
        await super(LabAgent, agent)._loop(run, state)

    def _limited_to(self, turns: int) -> LabAgent:
        agent = copy.copy(self)
        max_steps = min(turns, self.config.max_steps)
        agent.config = self.config.model_copy(update={"max_steps": max_steps})
        return agent

    async def get_response(
        self, state: RunState[ChatCompletionMessageParam], **kwargs: Any
    ) -> AgentStep:
        step = await super().get_response(state, **kwargs)
        tool = state.tools.get(NAME)
        if isinstance(tool, GatedTool):
            tool.thought = step.content or ""
        if _is_computer(tool) and (finish := _finish(step, tool)) is not None:
            step.done = True
            step.content = finish or step.content
        return step


def _is_computer(tool: Any) -> TypeGuard[ComputerTool | GatedTool]:
    return isinstance(tool, ComputerTool | GatedTool)


def _finish(step: AgentStep, tool: ComputerTool | GatedTool) -> str | None:
    """The text of a valid `finish` that is the turn's only call ("" without one), else None."""
    if len(step.tool_calls) != 1:
        return None
    arguments = step.tool_calls[0].arguments
    if step.tool_calls[0].name != NAME or not isinstance(arguments, dict):
        return None
    if arguments.get("action") != "finish":
        return None
    try:
        return parse_call(arguments, tool.view, tool.config).text or ""
    except CallError:
        return None


async def _append_screenshot(run: Run, state: RunState[ChatCompletionMessageParam]) -> None:
    """Show the screen as the episode starts: in the task's message and in the trace."""
    tool = state.tools[NAME]
    assert _is_computer(tool)
    image = (await tool.screenshot()).content[0]
    assert isinstance(image, mcp_types.ImageContent)
    url = data_url_of(image.data, image.mimeType)
    content = cast("list[dict[str, Any]]", _user_message(state)["content"])
    content.append({"type": "image_url", "image_url": {"url": url}})
    message = mcp_types.PromptMessage(role="user", content=image)
    run.record(Step(source="user", messages=[message]))


def _user_message(state: RunState[ChatCompletionMessageParam]) -> ChatCompletionMessageParam:
    """The last message if it is the user's, else a new, empty one."""
    if not state.messages or state.messages[-1]["role"] != "user":
        state.messages.append({"role": "user", "content": []})
    return state.messages[-1]
