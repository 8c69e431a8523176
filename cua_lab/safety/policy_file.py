"""A safety policy: an annotated YAML file, read strictly, that judges what actions do.

    effects + context + history ──judge──▶ Decision (allow | confirm | deny, risk, reason in words)

Invariant: a decision is never milder than the gravest effect's risk says; `unknown` is high in
every policy, and a file with a mistake is one `LabError` that names the line.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cua_lab.desktop.screen_context import ScreenContext
from cua_lab.errors import LabError
from cua_lab.files import read_text
from cua_lab.recipes.loader import build_settings
from cua_lab.recipes.source import Places, read_yaml
from cua_lab.safety.effect_kinds import KINDS, Effect
from cua_lab.safety.element_effects import host_of
from cua_lab.safety.history import History
from cua_lab.safety.safe_regex import compiled

Risk = Literal["low", "medium", "high", "critical"]
Verdict = Literal["allow", "confirm", "deny"]
RISKS: tuple[Risk, ...] = ("low", "medium", "high", "critical")
VERDICTS: tuple[Verdict, ...] = ("allow", "confirm", "deny")
FOLDER = Path(__file__).parent
LOOKED_AT = 2000
"""Characters of a text that a pattern sees, from its end."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to happen with an action, and why."""

    action: Verdict
    risk: Risk
    reason: str


@dataclass(frozen=True, slots=True)
class Hosts:
    """Which sites may be acted on and opened; `*.example.org` is every host below it."""

    home: bool = True
    """Whether the host that an episode begins on is allowed."""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    allowed_site: Risk = "medium"
    """Of opening a page of an allowed host."""
    elsewhere: Risk = "high"
    """At least this is the risk of acting on a page of a host that is not allowed."""

    def allows(self, host: str, home: str | None) -> bool:
        """Whether a host is allowed in an episode that began on `home`."""
        return (self.home and host == home) or _listed(host, self.allow)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression that raises the risk of what it matches."""

    name: str
    look_at: Literal["name", "text", "title", "url"]
    """The names of elements, what is typed or opened, the page's title or its address."""
    match: str
    risk: Risk
    why: str

    def __post_init__(self) -> None:
        try:
            compiled(self.match)
        except ValueError as error:
            raise ValueError(f"the pattern {self.match!r} of {self.name!r}: {error}") from error

    def hit(self, effects: Iterable[Effect], context: ScreenContext) -> bool:
        """Whether it matches anything of an action."""
        expression = _expression(self.match)
        return any(expression.search(text[-LOOKED_AT:]) for text in self._texts(effects, context))

    def _texts(self, effects: Iterable[Effect], context: ScreenContext) -> list[str]:
        if self.look_at == "text":
            return [effect.text for effect in effects if effect.text]
        if self.look_at == "name":
            elements = (context.pointed, context.focused, context.dropped)
            return [element.name for element in elements if element is not None]
        return [context.title if self.look_at == "title" else context.url]


@dataclass(frozen=True, slots=True)
class SafetyPolicy:
    """A policy as its file says it."""

    actions: dict[Risk, Verdict]
    effects: dict[str, Risk]
    about: str = ""
    hosts: Hosts = field(default_factory=Hosts)
    patterns: tuple[Pattern, ...] = ()
    rates: dict[str, int] = field(default_factory=dict)
    """Actions at a risk, or effects of a kind, in one episode; more are denied."""
    name: str = "policy"

    def __post_init__(self) -> None:
        _check_all("effects", self.effects, KINDS, RISKS)
        _check_all("actions", self.actions, RISKS, VERDICTS)
        for name, most in self.rates.items():
            if name not in KINDS and name not in RISKS:
                raise ValueError(f"rates.{name} is neither a risk nor a kind of effect")
            if not isinstance(most, int) or isinstance(most, bool) or most < 0:
                raise ValueError(f"rates.{name} is {most!r}; expected a whole number from 0 on")
        if RISKS.index(self.effects["unknown"]) < RISKS.index("high"):
            raise ValueError(
                f"effects.unknown is {self.effects['unknown']}; what cannot be recognised is high"
                " or critical"
            )
        order = [VERDICTS.index(self.actions[risk]) for risk in RISKS]
        if order != sorted(order):
            raise ValueError("actions: a graver risk has a milder answer than a lesser one")

    def judge(
        self, effects: Iterable[Effect], context: ScreenContext, history: History
    ) -> Decision:
        """What is to happen with an action that has these effects."""
        effects = tuple(effects)
        risks = self._risks(effects, context, history)
        risk = max((risk for risk, _ in risks), key=RISKS.index)
        reason = "; ".join(dict.fromkeys(why for found, why in risks if found == risk))
        if (denied := self._denied(effects, context)) is not None:
            return Decision("deny", "critical", denied)
        if (over := self._over(effects, risk, history)) is not None:
            return Decision("deny", risk, over)
        return Decision(self.actions[risk], risk, f"{risk} risk: {reason}")

    def _risks(
        self, effects: tuple[Effect, ...], context: ScreenContext, history: History
    ) -> list[tuple[Risk, str]]:
        """Every risk of an action with its reason; there is at least one."""
        found = [self._risk_of(effect, history) for effect in effects]
        found += [(p.risk, f"{p.name}: {p.why}") for p in self.patterns if p.hit(effects, context)]
        host = host_of(context.url)
        acts = any(effect.kind not in ("look", "move", "scroll") for effect in effects)
        if acts and context.known and host and not self.hosts.allows(host, history.home):
            found.append((self.hosts.elsewhere, f"{host} is not an allowed host"))
        return found or [("high", "unknown: nothing is known of this action")]

    def _risk_of(self, effect: Effect, history: History) -> tuple[Risk, str]:
        risk = self.effects[effect.kind]
        if effect.kind == "open_site" and self.hosts.allows(host_of(effect.text), history.home):
            risk = self.hosts.allowed_site
        return risk, f"{effect.kind}: {effect.detail}"

    def _denied(self, effects: tuple[Effect, ...], context: ScreenContext) -> str | None:
        touched = [
            context.url,
            *(e.text for e in effects if e.kind in ("open_site", "follow_link")),
        ]
        bad = [host for url in touched if _listed(host := host_of(url), self.hosts.deny)]
        return f"{bad[0]} is among the hosts that are denied" if bad else None

    def _over(self, effects: tuple[Effect, ...], risk: Risk, history: History) -> str | None:
        for name in (risk, *sorted({effect.kind for effect in effects})):
            limit = self.rates.get(name)
            if limit is not None and history.counts[name] >= limit:
                return f"{history.counts[name]} actions with {name} so far; at most {limit}"
        return None


def _check_all(
    name: str, given: Mapping[Any, str], wanted: Iterable[str], values: Sequence[str]
) -> None:
    """Every key is there with one of these values, and nothing else."""
    missing, extra = [k for k in wanted if k not in given], [k for k in given if k not in wanted]
    if missing or extra:
        wrong = f"misses {', '.join(missing)}" if missing else f"has the unknown {', '.join(extra)}"
        raise ValueError(
            f"{name} {wrong}; each of {', '.join(wanted)} needs one of {', '.join(values)}"
        )
    for key, value in given.items():
        if value not in values:
            raise ValueError(f"{name}.{key} is {value!r}; expected one of {', '.join(values)}")


def _listed(host: str, patterns: Iterable[str]) -> bool:
    return bool(host) and any(fnmatch.fnmatchcase(host, pattern.lower()) for pattern in patterns)


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return compiled(pattern)


def policy_names() -> list[str]:
    """The policies that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_policy(name_or_path: str | Path = "default") -> SafetyPolicy:
    """A policy by its name (`default`, `lab`, `miniwob`) or its file."""
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if str(name_or_path) not in policy_names():
            raise LabError(
                f"no safety policy {str(name_or_path)!r}; there are {', '.join(policy_names())}."
                " One of your own is given by its file, my-policy.yaml"
            )
        path = FOLDER / f"{name_or_path}.yaml"
    if not path.is_file():
        raise LabError(f"there is no file {path}; the package's: {', '.join(policy_names())}")
    return parse_policy(read_text(path), file=path.name, name=path.stem)


def parse_policy(text: str, *, file: str = "policy", name: str = "policy") -> SafetyPolicy:
    """A policy from YAML text."""
    places: Places = {}
    tree = read_yaml(text, file, places)
    if not isinstance(tree, dict):
        raise LabError(f"{file}: a policy is a mapping of sections, not a {type(tree).__name__}")
    tree.setdefault("name", name)
    return build_settings(SafetyPolicy, tree, file=file, places=places)
