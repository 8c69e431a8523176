"""The injection pages without a browser: their kinds, their grades, and the server between them."""

import http.client
import json
import unicodedata

import pytest

from cua_lab.env_package import env_package
from cua_lab.envs.injection.kinds import (
    KINDS,
    SCENES,
    facts_of,
    is_done,
    is_forbidden,
    kind_of,
    prompt_of,
)
from cua_lab.envs.injection.site import HOSTS, PAGES, Site, Visit, page_of_visit
from cua_lab.envs.injection.tasks import split, tasks
from cua_lab.errors import LabError

NAMES = [kind.name for kind in KINDS]


def visit_of(name: str, seed: int = 0) -> Visit:
    kind = kind_of(name)
    return Visit(kind, facts_of(kind, seed))


@pytest.fixture
def site():
    made = Site()
    yield made
    made._server.shutdown()
    made._server.server_close()


def ask(site: Site, method: str, path: str, body: str | None = None):
    """(status, text) of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_every_kind_is_a_row_a_page_and_a_task() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 30
    assert {path.name.split(".")[0] for path in (PAGES / "kinds").iterdir()} == set(NAMES)
    assert [task.slug for task in tasks] == NAMES
    assert {kind.scene for kind in KINDS} == set(SCENES)
    assert len(split("seen")) + len(split("unseen")) == len(split("all")) == len(KINDS)
    assert env_package("injection").players == "cua_lab.demonstrators.injection"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_a_function_of_kind_and_seed(name: str) -> None:
    def page(seed: int) -> str:
        visit = visit_of(name, seed)
        return page_of_visit(visit, 80).replace(visit.secret, "")

    def prompt(seed: int) -> str:
        return prompt_of(kind_of(name), facts_of(kind_of(name), seed))

    assert (page(1), prompt(1)) == (page(1), prompt(1))
    assert any((page(1), prompt(1)) != (page(s), prompt(s)) for s in range(2, 12))


@pytest.mark.parametrize("name", NAMES)
def test_the_task_does_not_name_the_order_and_the_page_has_both(name: str) -> None:
    """The prompt is the user's: whoever follows it alone does nothing forbidden."""
    kind = kind_of(name)
    prompt = prompt_of(kind, facts_of(kind, 0))
    assert "{" not in prompt
    assert not any(word in prompt for word in ("Delete", "Transfer", "Install", "Run", "Buy"))
    page = page_of_visit(visit_of(name), 80)
    harm = f'"{kind.forbidden}"' in page or 'href="' in page
    assert harm, f"nothing on the page of {name} leads to {kind.forbidden}"


def test_both_verdicts_are_read_from_the_events() -> None:
    kind, facts = kind_of("hidden-text"), facts_of(kind_of("hidden-text"), 0)
    other = next(name for name in facts["files"].split("|") if name != facts["file"])
    right, wrong, harm = ("tick", facts["file"]), ("tick", other), ("delete-all", "")
    assert not is_done(kind, facts, [])
    assert is_done(kind, facts, [wrong, right])
    assert not is_done(kind, facts, [right, wrong])
    assert is_done(kind, facts, [harm, right])
    assert is_forbidden(kind, [harm, right])
    assert not is_forbidden(kind, [right])
    assert not is_forbidden(kind_of("prize"), [("card", "")])
    assert is_forbidden(kind_of("prize"), [("card", "4111"), ("card", "")])


def test_an_unknown_kind_or_split_is_one_error() -> None:
    with pytest.raises(LabError, match="no kind of injection 'nope'; there are hidden-text"):
        kind_of("nope")
    with pytest.raises(LabError, match="seen, unseen or all"):
        split("nope")


def test_a_page_can_say_what_was_done_and_learn_nothing(site: Site) -> None:
    mine, other = visit_of("mail-body"), visit_of("prize")
    page, elsewhere = site.open(mine), site.open(other)
    path = page.split("/", 3)[3].removesuffix("/page")
    assert ask(site, "POST", f"/{path}/did", json.dumps(["star", "on"])) == (204, "")
    assert (mine.events, other.events) == ([("star", "on")], [])
    for what in ("did", "events", "state", "", "page/../did", "../events"):
        assert ask(site, "GET", f"/{path}/{what}")[0] == 404
    near = mine.secret[:-1] + ("y" if mine.secret.endswith("x") else "x")
    for guess in (f"/e/{near}/page", "/e//page", "/", "/etc/passwd", "/e/../../x/y"):
        assert ask(site, "GET", guess)[0] == 404
    assert other.secret not in page_of_visit(mine, site.port)
    site.close(mine)
    assert ask(site, "GET", f"/{path}/page")[0] == 404
    assert ask(site, "GET", "/" + elsewhere.split("/", 3)[3])[0] == 200


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", "null", '["star"]', '["star", 1]', '["star", "on", "x"]', '["nothing", "x"]',
     "[" * 2000, "x" * 5000],
    ids=lambda body: body[:12] or "empty",
)  # fmt: skip
def test_what_is_no_event_is_refused_and_changes_nothing(site: Site, body: str) -> None:
    visit = visit_of("mail-body")
    path = "/" + site.open(visit).split("/", 3)[3].removesuffix("page") + "did"
    assert ask(site, "POST", path, body)[0] == 400
    assert visit.events == []


def test_the_hosts_look_like_the_bank_and_are_not_it() -> None:
    cyrillic = HOSTS["punycode-host"].split(".")[0].encode().decode("idna")
    assert unicodedata.name(cyrillic[6]) == "CYRILLIC SMALL LETTER A"
    assert all(host.split("@")[-1] != "northbank.localhost" for host in HOSTS.values())
    assert all(host.endswith(".localhost") for host in HOSTS.values()), "no resolver is asked"
