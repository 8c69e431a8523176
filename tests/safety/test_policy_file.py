"""Policy files: read strictly, judged by the gravest effect, with a reason."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.errors import LabError
from cua_lab.safety.effects import KINDS, Effect, Element, ScreenContext
from cua_lab.safety.history import History
from cua_lab.safety.policy_file import (
    FOLDER,
    RISKS,
    VERDICTS,
    load_policy,
    parse_policy,
    policy_names,
)
from cua_lab.safety.safe_regex import compiled

DEFAULT = (FOLDER / "default.yaml").read_text()
PAGE = ScreenContext(url="http://e1.localhost/a")


def judged(*effects, policy="default", context=PAGE, history=None):
    history = history or History(home="e1.localhost")
    return load_policy(policy).judge(effects, context, history)


@pytest.mark.parametrize("name", policy_names())
def test_the_package_s_policies_are_whole(name) -> None:
    policy = load_policy(name)
    assert set(policy.effects) == set(KINDS)
    assert policy.about


@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=6),
       st.sampled_from(policy_names()))  # fmt: skip
def test_an_action_is_as_grave_as_its_gravest_effect(kinds, name) -> None:
    policy = load_policy(name)
    decision = judged(*[Effect(kind, "x", "http://e1.localhost") for kind in kinds], policy=name)
    gravest = (
        max(RISKS.index(policy.effects[k]) for k in kinds if k != "open_site")
        if set(kinds) - {"open_site"}
        else 0
    )
    assert RISKS.index(decision.risk) >= gravest
    assert VERDICTS.index(decision.action) >= VERDICTS.index(policy.actions[RISKS[gravest]])
    assert decision.reason


def test_no_effect_at_all_is_high() -> None:
    assert judged().risk == "high"


def test_hosts() -> None:
    open_site = lambda url: Effect("open_site", "x", url)  # noqa: E731
    assert judged(open_site("http://e1.localhost/b")).action == "allow"
    assert judged(open_site("http://evil.example/")).action == "confirm"
    elsewhere = ScreenContext(url="http://evil.example/")
    assert judged(Effect("type", "x"), context=elsewhere).action == "confirm"
    assert judged(Effect("look", "x"), context=elsewhere).action == "allow"
    text = DEFAULT.replace("  deny: []", '  deny: ["*.example"]')
    policy = parse_policy(text)
    denied = policy.judge([Effect("click", "x")], elsewhere, History(home="evil.example"))
    assert denied.action == "deny"
    assert "evil.example" in denied.reason


def test_a_pattern_raises_the_risk() -> None:
    address = Effect("open_site", "x", "javascript:alert(1)")
    assert judged(address).action == "deny"
    keyed = ScreenContext(url=PAGE.url, pointed=Element("button", "Show recovery key"))
    assert judged(Effect("click", "x"), context=keyed).action == "deny"


def test_a_rate_ends_in_a_denial() -> None:
    history = History(home="e1.localhost")
    history.counts["high"] = 20
    decision = judged(Effect("send", "x"), history=history)
    assert decision.action == "deny"
    assert "20" in decision.reason


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("  unknown: high", "  unknown: medium"), "effects.unknown is medium"),
        (("  unknown: high", "  unknown: hi"), "effects.unknown is 'hi'"),
        (("  look: low\n", ""), "misses look"),
        (("  look: low\n", "  look: low\n  lok: low\n"), "unknown lok"),
        (("  critical: deny", "  critical: allow"), "milder"),
        (("  high: 20", "  high: -1"), "rates.high is -1"),
        (("  high: 20", "  hihg: 20"), "rates.hihg"),
        (("hosts:\n  home", "hosts:\n  hoem"), "hoem"),
        (("rates:", "rates"), "not valid YAML"),
        (("^(?:https", "(a+)+^(?:https"), "repeat inside of a repeat"),
    ],
)
def test_a_bad_file_is_one_error_in_words(change, said) -> None:
    assert change[0] in DEFAULT
    with pytest.raises(LabError, match=re.escape(said)) as error:
        parse_policy(DEFAULT.replace(*change, 1), file="mine.yaml")
    assert "mine.yaml" in str(error.value)


def test_a_policy_that_is_not_there() -> None:
    with pytest.raises(LabError, match="default, lab, miniwob"):
        load_policy("strict")
    with pytest.raises(LabError, match="no file"):
        load_policy("nowhere/mine.yaml")


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a*)*", "(?:a|b+)*c", "a*b*c*d*", "(?=a)a",
                                     r"(a)\1", "(", "(a{2,9}){3}", "x" * 501])  # fmt: skip
def test_patterns_whose_time_may_explode_are_refused(pattern) -> None:
    with pytest.raises(ValueError):
        compiled(pattern)


@pytest.mark.parametrize("pattern", [r"\bpay\b", "a+b", "(?:ab|cd){0,1}", "x{0,40}y", "(abc)?d*"])
def test_other_patterns_are_taken(pattern) -> None:
    assert compiled(pattern).flags & re.IGNORECASE
    started = time.process_time()
    compiled(pattern).search("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 50)
    assert time.process_time() - started < 30  # exponential time would be years
