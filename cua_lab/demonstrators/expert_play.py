"""An expert plays an episode: through HUD, the agent and the tool, as a policy would."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from hud.eval import LocalRuntime, Task

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.coordinates import Space, View
from cua_lab.computer.settling import QuietFramebuffer
from cua_lab.demonstrators.expert_hands import Arguments, Hands
from cua_lab.demonstrators.experts import EXPERTS, UNSOLVED
from cua_lab.desktop.chromium import ChromiumDesktop
from cua_lab.envs.miniwob.env import NAME, build_on
from cua_lab.errors import LabError
from cua_lab.play.agent import LabAgentConfig
from cua_lab.play.episode import Episode, play
from cua_lab.play.scripted import Messages, ScriptedTransport

FINISH: Arguments = {"action": "finish", "text": "done"}
TURNS = 30


def expert_of(page: str) -> Any:
    """The page's expert, or why there is none."""
    if page not in EXPERTS:
        why = UNSOLVED.get(page, "nobody has written one")
        raise LabError(f"no expert for {page!r}: {why}; there are {', '.join(EXPERTS)}")
    return EXPERTS[page]


async def play_expert(
    desktop: ChromiumDesktop,
    page: str,
    seed: int,
    *,
    config: LabAgentConfig,
    id: str = "expert",
    args: dict[str, Any] | None = None,
    told: list[str] | None = None,
    hand: Callable[[Arguments], Arguments] = lambda call: call,
) -> Episode:
    """Let the expert play `page` with `seed` on a desktop of one's own; `told` takes the task in
    words. Each call goes through `hand`, which may be a shaky one."""
    expert = expert_of(page)
    width, height = desktop.size
    whole = {"turns": TURNS, **(args or {}), "page": page, "seed": seed,
             "width": width, "height": height}  # fmt: skip
    view = View(desktop.size, config.tool.screenshot_width, config.tool.coordinate_space)
    calls: AsyncIterator[Arguments] | None = None

    async def player(messages: Messages) -> Arguments:
        nonlocal calls
        if calls is None:
            said = _task_of(messages)
            calls = expert(Hands(desktop, view, said))
            if told is not None:
                told.append(said)
        return hand(await anext(calls, FINISH))

    return await play(
        Task(env=NAME, id="miniwob", args=whole, slug=page),
        config.model_copy(update={"max_steps": TURNS}),
        ScriptedTransport(player),
        runtime=LocalRuntime(lambda task: build_on(desktop)),
        id=id,
        group=id,
    )


def _task_of(messages: Messages) -> str:
    """The task in words: the text of the first user message."""
    content = next(m["content"] for m in messages if m["role"] == "user")
    if isinstance(content, str):
        return content
    return str(next(part["text"] for part in content if part["type"] == "text"))


def expert_config(space: Space = "pixels", **tool: Any) -> LabAgentConfig:
    """How experts play by default: paced for a browser, every frame at rest."""
    settings = {"settle": QuietFramebuffer(), "coordinate_space": space, **tool}
    return LabAgentConfig(model="expert", system_prompt=None, tool=ToolConfig(**settings))
