"""Pages that try what a page must not: the lab's files, other desktops, the engine, the grader.

What each runtime promises is written in docs/isolation.md; here is what this machine can test.
"""

import asyncio
import json
import os
from pathlib import Path

import pytest
from hud.agents.base import Agent
from hud.eval import Task
from hud.eval.run import rollout

from cua_lab.computer.session import ScreenSession
from cua_lab.desktop.cdp import BrowserError
from cua_lab.desktop.page_server import PageServer
from cua_lab.envs.injection.kinds import facts_of, kind_of
from cua_lab.envs.injection.site import Site, Visit
from cua_lab.play.runtimes import make_runtime

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SECRET = "only-for-the-lab"
LOCAL = {
    "fetch": "fetch(AT).then(answer => answer.text()).catch(String)",
    "request": "new Promise(done => { const ask = new XMLHttpRequest(); "
    "ask.onloadend = () => done(ask.responseText); ask.open('GET', AT); ask.send() })",
    "frame": "new Promise(done => { const frame = document.createElement('iframe'); "
    "frame.onload = () => { try { done(frame.contentDocument.body.innerText) } "
    "catch (error) { done(String(error)) } }; frame.src = AT; document.body.append(frame); "
    "setTimeout(() => done('nothing'), 500) })",
    "picture": "new Promise(done => { const image = new Image(); image.onload = () => done('seen');"
    " image.onerror = () => done('nothing'); image.src = AT })",
    "window": "new Promise(done => { const made = open(AT); setTimeout(() => { try { "
    "done(made ? made.document.body.innerText : 'nothing') } catch (error) { done(String(error)) } "
    "}, 300) })",
    "navigation": "new Promise(done => { location = AT; "
    "setTimeout(() => done(document.body.innerText), 300) })",
}  # fmt: skip


@pytest.fixture
def page(tmp_path):
    (tmp_path / "page.html").write_text("<!doctype html><title>page</title><p>hello")
    (tmp_path.parent / "secret.txt").write_text(SECRET)
    with PageServer({"p": tmp_path}) as server:
        yield server.url("p/page.html"), f"file://{tmp_path.parent}/secret.txt"


def on(desktops, scenario):
    async def main():
        async with asyncio.timeout(120), desktops.lend() as desktop:
            return await scenario(desktop)

    return asyncio.run(main())


@pytest.mark.parametrize("way", LOCAL)
def test_a_page_reads_no_file_of_the_lab(desktops, page, way) -> None:
    at, secret = page

    async def scenario(desktop):
        await desktop.show(at)
        try:
            return str(await desktop.evaluate(LOCAL[way].replace("AT", repr(secret))))
        except BrowserError as error:
            return str(error)

    assert SECRET not in on(desktops, scenario)


@pytest.mark.parametrize("scheme", ["", "view-source:"])
def test_an_address_bar_shows_no_file_of_the_lab(desktops, page, scheme) -> None:
    """Ctrl+N opens a window that has one, kiosk or not; it showed any file of the user's."""
    at, secret = page

    async def scenario(desktop):
        await desktop.show(at)
        session = await ScreenSession.on(desktop.url)
        try:
            await session.call({"action": "press", "keys": ["ctrl+n"]})
            await until(lambda: windows(desktop, "chrome://new"))
            for keys in (["ctrl+l"], [*scheme, *secret], ["enter"]):
                await session.call({"action": "press", "keys": keys})
            target = await until(lambda: windows(desktop, scheme + "file:"))
            return await text_of(desktop, target[0])
        finally:
            await session.close()

    shown = on(desktops, scenario)
    assert SECRET not in shown
    assert "blocked" in shown


async def until(look):
    """What `look` finds, once it finds something."""
    for _ in range(400):
        if found := await look():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("it never came")


async def windows(desktop, start: str) -> list[str]:
    from cua_lab.desktop import background

    told = await background.run(desktop._cdp.call("Target.getTargets"))
    return [t["targetId"] for t in told["targetInfos"]
            if t["type"] == "page" and t["url"].startswith(start)]  # fmt: skip


async def text_of(desktop, target: str) -> str:
    from cua_lab.desktop import background

    async def read():
        call = desktop._cdp.call
        session = (await call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        for _ in range(200):
            answer = await call("Runtime.evaluate", session=session, returnByValue=True,
                                expression="document.body?.innerText ?? ''")  # fmt: skip
            if text := answer["result"].get("value"):
                return text
            await asyncio.sleep(0.05)
        return ""

    return await background.run(read())


def test_a_page_reaches_neither_another_desktop_nor_another_visits_events(desktops) -> None:
    """It may say what was done on it; it may not ask, nor say it for somebody else."""
    site = Site()
    mine, other = (Visit(kind_of(k), facts_of(kind_of(k), 0)) for k in ("mail-body", "prize"))
    address = site.open(mine)
    site.open(other)

    async def scenario(desktop):
        await desktop.show(address)
        tries = [
            ("GET", "did"), ("GET", "events"), ("POST", "page"), ("DELETE", "did"),
            ("POST", f"/e/{other.secret[:-1]}_/did"), ("GET", "/e/"), ("GET", "/"),
        ]  # fmt: skip
        statuses = await desktop.evaluate(
            "Promise.all(" + json.dumps(tries) + ".map(([method, path]) => "
            "fetch(path, {method, body: method === 'POST' ? '[\"card\", \"1\"]' : undefined})"
            ".then(answer => answer.status)))"
        )
        rfb = desktop.url.replace("rfb://", "http://")
        reached = await desktop.evaluate(f"fetch({rfb!r}).then(() => 'in', String)")
        return statuses, reached

    try:
        statuses, reached = on(desktops, scenario)
    finally:
        site._server.shutdown()
        site._server.server_close()
    assert set(statuses) <= {404, 501}
    assert "in" not in reached.split()
    assert (mine.events, other.events) == ([], [])


def test_the_browser_holds_no_descriptor_or_variable_of_the_lab(desktops, monkeypatch) -> None:
    """A page that breaks out of its process would find these first."""
    monkeypatch.setenv("HUD_API_KEY", SECRET)

    async def scenario(desktop):
        return desktop.pids

    for pid in on(desktops, scenario):
        assert SECRET not in Path(f"/proc/{pid}/environ").read_text(errors="replace")
        opened = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists()]
        ours = [name for name in opened if name.startswith(str(Path(__file__).parents[2]))]
        assert ours == []


HOSTILE = """
import os

from hud.environment import Environment

env = Environment("hostile")


@env.template(id="look")
async def look(seed: int = 0):
    yield {"prompt": "Look."}
    seen = sorted(name for name, value in os.environ.items() if "only-for-the-lab" in value)
    yield {"score": 1.0, "info": {"seen": seen, "path": "PATH" in os.environ}}
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_env_in_a_child_process_sees_no_credential(tmp_path, monkeypatch) -> None:
    """HUD hands its whole environment on to the server of an env."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    (folder / "env.py").write_text(HOSTILE)
    planted = ("HUD_API_KEY", "DAYTONA_API_KEY", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN",
               "SSH_AUTH_SOCK", "DB_PASSWORD")  # fmt: skip
    for name in planted:
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("HARMLESS", SECRET)

    class Idle(Agent):
        async def __call__(self, run) -> None:
            pass

    async def scenario():
        async with asyncio.timeout(100):
            runtime = make_runtime(str(folder), "subprocess")
            return await rollout(Task(env="hostile", id="look", args={}), Idle(), runtime=runtime)

    assert asyncio.run(scenario()).grade.info == {"seen": ["HARMLESS"], "path": True}
