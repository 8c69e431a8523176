"""The pool: lends, resets, replaces, and leaves nothing."""

import asyncio
import os
import signal

import psutil
import pytest

from cua_lab.desktop import background, roundtrip
from cua_lab.desktop.chromium import ChromiumDesktop
from cua_lab.desktop.pool import DesktopPool
from cua_lab.errors import LabError
from tests.conftest import needs_chromium

pytestmark = pytest.mark.browser


def test_a_borrower_waits_until_a_desktop_is_free(desktops) -> None:
    async def scenario():
        first, second = await desktops.borrow(), await desktops.borrow()
        assert first is not second
        third = asyncio.create_task(desktops.borrow())
        await asyncio.sleep(0.2)
        assert not third.done()
        await desktops.give_back(first)
        async with asyncio.timeout(30):
            assert await third is first
        await desktops.give_back(first)
        await desktops.give_back(second)

    asyncio.run(scenario())


def test_a_borrower_who_gives_up_takes_no_desktop(desktops) -> None:
    async def scenario():
        lent = [await desktops.borrow() for _ in range(desktops.count)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await desktops.borrow()
        for desktop in lent:
            await desktops.give_back(desktop)
        async with asyncio.timeout(30):
            again = [await desktops.borrow() for _ in range(desktops.count)]
        for desktop in again:
            await desktops.give_back(desktop)

    asyncio.run(scenario())


def test_a_page_that_was_kept_goes_to_who_asks_for_it_and_to_nobody_else(desktops) -> None:
    page, other = "data:text/html,<p>mine", "data:text/html,<p>yours"

    async def scenario():
        for url in (page, other):
            async with desktops.lend(url, keep=True) as desktop:
                await desktop.show(url)
        for url in (page, other, page):
            async with desktops.lend(url, keep=True) as desktop:
                assert desktop.page == url
                await desktop.rest()
        for _ in range(desktops.count):
            async with desktops.lend() as desktop:
                assert desktop.page is None
                assert await desktop.evaluate("location.href") == "about:blank"

    asyncio.run(scenario())


def test_a_page_that_complained_is_not_kept(desktops) -> None:
    async def scenario():
        async with desktops.lend(keep=True) as desktop:
            await desktop.show("data:text/html,<script>console.error('x')</script>")
            assert desktop.faults
        async with desktops.lend(desktop.page, keep=True) as again:
            assert again.page is None
            assert again.faults == []

    asyncio.run(scenario())


def test_what_is_lent_shows_nothing_of_the_last_borrower(desktops) -> None:
    async def scenario():
        for _ in range(desktops.count + 1):
            async with desktops.lend() as desktop:
                assert await desktop.evaluate("[location.href, document.body.innerText]") == [
                    "about:blank",
                    "",
                ]
                assert desktop.faults == []
                await desktop.show("data:text/html,<p>mine<script>console.error('x')</script>")

    asyncio.run(scenario())


def test_dead_and_frozen_desktops_are_replaced() -> None:
    needs_chromium()

    async def scenario():
        async with DesktopPool(1, 160, 160) as pool:
            for fault in (signal.SIGKILL, signal.SIGSTOP):
                async with pool.lend() as desktop:
                    os.kill(desktop.pids[1], fault)
                    await asyncio.sleep(0.1)
                async with asyncio.timeout(60), pool.lend() as other:
                    assert other is not desktop
                    assert await other.evaluate("1 + 1") == 2
            return pool.booted

    assert asyncio.run(scenario()) == 3


def test_a_desktop_whose_page_gets_no_key_is_not_lent_again(monkeypatch) -> None:
    """Its screenshots look perfect, and every episode on it would fail."""
    needs_chromium()
    monkeypatch.setattr(roundtrip, "HEAR_S", 1.0)
    swallow = "addEventListener('keyup', e => e.stopImmediatePropagation(), true)"
    page = f"data:text/html,<script>{swallow}</script>"

    async def scenario():
        async with DesktopPool(1, 160, 160) as pool:
            async with pool.lend(page, keep=True) as deaf:
                await deaf.show(page)
            async with asyncio.timeout(60), pool.lend(page, keep=True) as other:
                assert other is not deaf
                assert await other.evaluate("1 + 1") == 2

    asyncio.run(scenario())


def test_a_pool_outlives_the_loop_that_made_it_and_leaves_nothing() -> None:
    """A recipe, a notebook and a plain function each have loops of their own."""
    needs_chromium()
    pool = DesktopPool(1, 160, 160)
    asyncio.run(pool.start())

    async def pids():
        async with pool.lend() as desktop:
            return desktop.pids

    family = [psutil.Process(pid) for pid in asyncio.run(pids())]
    desktop = background.wait(pool.borrow())  # lent when the pool is closed
    assert isinstance(desktop, ChromiumDesktop)
    asyncio.run(pool.close())
    assert not any(process.is_running() for process in family)
    with pytest.raises(LabError, match="closed"):
        asyncio.run(pool.borrow())


@pytest.mark.parametrize("count", [0, 17])
def test_a_pool_of_no_or_too_many_desktops_is_refused(count) -> None:
    with pytest.raises(LabError, match="1 to 16"):
        DesktopPool(count)
