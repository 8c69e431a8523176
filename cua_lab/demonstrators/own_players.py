"""Scripted players for an env of one's own: from one function to all that a recipe asks for.

    show(state, rng, **options) -> the next call, in pixels ──▶ demonstrator, random_player

`show` sees the state that graders see, so it knows the answer; its noise leaves GRPO something to
find. Invariant: demo number `index` is a function of the index alone, and its screens are the
app's own, or were recorded from the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cua_lab.computer.coordinates import View
from cua_lab.computer.keys import parse_chord, type_keysyms
from cua_lab.demonstrators.demos import Demo, DemoRequest, PromptContext, _Conversation
from cua_lab.demonstrators.expert_play import expert_config
from cua_lab.demonstrators.recorder import Recorder, demo_of
from cua_lab.desktop.app import LEFT, App
from cua_lab.errors import LabError
from cua_lab.play.episode import play
from cua_lab.play.scripted import ScriptedTransport, random_clicks, random_keys
from cua_lab.seeds import derive_seed

if TYPE_CHECKING:
    from hud.environment import Environment

    from cua_lab.desktop.chromium import ChromiumDesktop
    from cua_lab.play.episode import Episode
    from cua_lab.play.scripted import Messages, ScriptedPolicy

Call = dict[str, Any]
Show = Callable[..., Call | None]
"""(state, rng, **options) -> arguments of the next call, x and y in pixels; None: nothing more."""


class TaskApp(App, Protocol):
    """An app that says what to do."""

    instruction: str


class Players(NamedTuple):
    """What a players.py offers; see `cua_lab.demonstrators.lab`."""

    demonstrator: Callable[..., Any]
    random_player: Callable[..., ScriptedPolicy]


def app_players(make: Callable[..., TaskApp], show: Show, *, keyboard: bool = False) -> Players:
    """Players of an app: `make(width, height, seed=...)` builds it. With `keyboard`, random play
    presses arrow keys instead of clicking."""

    def demonstrator(asked: DemoRequest) -> AppPlayer:
        _check_options(show, asked.options)
        args, options, view = dict(asked.args), dict(asked.options), _view_of(asked)
        return AppPlayer(asked.prompt, make, show, args, options, view, asked.turns, asked.seed)

    return Players(demonstrator, _at_random(keyboard))


def page_players(
    build_on: Callable[[ChromiumDesktop], Environment], show: Show, *, keyboard: bool = False
) -> Players:
    """Players of a page, recorded in Chromium: `build_on(desktop)` makes the env on a desktop."""

    def demonstrator(asked: DemoRequest) -> PageRecorder:
        _check_options(show, asked.options)
        args, options, view = dict(asked.args), dict(asked.options), _view_of(asked)
        whole = args | {"turns": asked.turns}
        player = PagePlayer(
            asked.prompt, build_on, asked.template, show, whole, options, view, asked.seed
        )
        return PageRecorder(player)

    return Players(demonstrator, _at_random(keyboard))


def _view_of(asked: DemoRequest) -> View:
    return View((asked.args["width"], asked.args["height"]), space=asked.space)


def near_middle(box: tuple[float, float, float, float], rng: Random, noise: float) -> Call:
    """A click around the middle of a box (left, top, right, bottom) with a standard deviation of
    `noise` pixels."""
    left, top, right, bottom = box
    return {
        "action": "click",
        "x": (left + right) / 2 + rng.gauss(0, noise),
        "y": (top + bottom) / 2 + rng.gauss(0, noise),
    }


@dataclass(frozen=True, slots=True)
class AppPlayer:
    """Demonstrations on an app, which is drawn and driven here, without a wire."""

    prompt: PromptContext
    make: Callable[..., TaskApp]
    show: Show
    args: dict[str, Any]
    options: dict[str, Any]
    view: View
    turns: int
    seed: int

    def __call__(self, index: int) -> Demo:
        rng = Random(f"own {self.seed} {index}")
        known = {k: v for k, v in self.args.items() if k not in ("turns", "seed")}
        app = self.make(**known, seed=self.start_of(index))
        talk = _Conversation(self.prompt, app.instruction, app.draw())
        for turn in range(self.turns):
            call = self.show(app.state(), rng, **self.options)
            if call is None:
                break
            if turn:
                talk.result(app.draw())
            talk.call(_said(call, self.view))
            _act(app, _on_screen(call, self.view.screen))
        return talk.demo()

    def start_of(self, index: int) -> int:
        """The seed of the app that demo number `index` plays."""
        return derive_seed(self.seed, "start", index)


@dataclass(frozen=True, slots=True)
class PagePlayer:
    """Demonstrations on a page, each a whole episode."""

    prompt: PromptContext
    build_on: Callable[[ChromiumDesktop], Environment]
    template: str
    show: Show
    args: dict[str, Any]
    options: dict[str, Any]
    view: View
    seed: int

    async def record(self, desktop: ChromiumDesktop, index: int) -> Demo:
        """Demo number `index`, played on this desktop."""
        episode, told = await self.play(desktop, index)
        if episode.status == "failed":
            raise LabError(f"demonstration {index} of {self.template} failed: {episode.error}")
        return demo_of(self.prompt, told, episode)

    async def play(self, desktop: ChromiumDesktop, index: int) -> tuple[Episode, str]:
        """The episode of demo number `index`, and what its player was told."""
        from hud.eval import LocalRuntime, Task

        rng = Random(f"own {self.seed} {index}")
        told: list[str] = []

        async def player(messages: Messages) -> Call:
            content = next(m["content"] for m in messages if m["role"] == "user")
            told.append(next(part["text"] for part in content if part["type"] == "text"))
            call = self.show(await desktop.evaluate("lab.state()"), rng, **self.options)
            return {"action": "finish"} if call is None else _said(call, self.view)

        args = {**self.args, "seed": derive_seed(self.seed, "page", index)}
        name = self.build_on(desktop).name
        episode = await play(
            Task(env=name, id=self.template, args=args, slug=self.template),
            expert_config(self.view.space).model_copy(update={"max_steps": self.args["turns"]}),
            ScriptedTransport(player),
            runtime=LocalRuntime(lambda task: self.build_on(desktop)),
            id=f"demo-{index}",
            group="demo",
        )
        return episode, told[0] if told else ""


class PageRecorder(Recorder):
    """Records a player's episodes, as any recorder does, and knows its player."""

    def __init__(self, player: PagePlayer) -> None:
        super().__init__(player.record, (player.view.screen, 1.0))
        self.player = player


def _at_random(keyboard: bool) -> Callable[..., ScriptedPolicy]:
    def random_player(
        template: str, *, seed: int, keys_per_turn: float, max_keys: int, space: str
    ) -> ScriptedPolicy:
        if keyboard:
            return random_keys(seed, keys_per_turn, at_most=max_keys)
        return random_clicks(seed, space)

    return random_player


def _check_options(show: Show, options: Mapping[str, Any]) -> None:
    import inspect

    known = list(inspect.signature(show).parameters)[2:]
    if unknown := sorted(set(options) - set(known)):
        raise LabError(
            f"sft.player: show() of players.py takes {', '.join(known) or 'no options'};"
            f" got {', '.join(unknown)}"
        )


def _on_screen(call: Call, size: tuple[int, int]) -> Call:
    """The call with whole pixels of the screen."""
    return call | {
        name: min(side - 1, max(0, round(call[name])))
        for name, side in zip("xy", size, strict=True)
        if name in call
    }


def _said(call: Call, view: View) -> Call:
    """The call as the policy would say it: in the stage's coordinate space."""
    if "x" not in call:
        return dict(call)
    at = _on_screen(call, view.screen)
    x, y = view.from_screen(at["x"], at["y"])
    return call | {"x": x, "y": y}


def _act(app: App, call: Call) -> None:
    """Do a call on an app that no wire is in front of."""
    action = call.get("action")
    if action == "click":
        for buttons in (LEFT, 0):
            app.pointer(call["x"], call["y"], buttons)
    elif action == "press":
        for chord in map(parse_chord, call["keys"]):
            for down, keysyms in ((True, chord), (False, chord[::-1])):
                for keysym in keysyms:
                    app.key(keysym, down)
    elif action == "type":
        for keysym in type_keysyms(call["text"]):
            app.key(keysym, True)
            app.key(keysym, False)
    else:
        raise LabError(f"show() of players.py may click, press or type; got {action!r}")
