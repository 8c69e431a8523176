"""The DevTools pipe against a browser that is a function: every call ends."""

import asyncio
import json

import pytest

from cua_lab.desktop.cdp import CDP, BrowserError, BrowserGone, CDPError


class Browser:
    """Reads what is written to it and answers as told."""

    def __init__(self, answer) -> None:
        self.reader, self.answer, self.asked = asyncio.StreamReader(), answer, []

    def write(self, data: bytes) -> None:
        message = json.loads(data[:-1])
        self.asked.append(message)
        for reply in self.answer(message):
            self.reader.feed_data(json.dumps(reply).encode() + b"\0")

    def close(self) -> None:
        self.reader.feed_eof()


def play(answer, scenario, events=None):
    async def main():
        browser = Browser(answer)
        cdp = CDP(browser.reader, browser, (events if events is not None else []).append)
        try:
            async with asyncio.timeout(5):
                return await scenario(cdp, browser)
        finally:
            await cdp.close()

    return asyncio.run(main())


def test_answers_find_their_calls_in_any_order_and_events_go_to_the_handler() -> None:
    held, events = [], []

    def answer(message):
        held.append({"id": message["id"], "result": {"to": message["params"]["n"]}})
        return [{"method": "Event", "params": {}}, *reversed(held)] if len(held) == 2 else []

    async def scenario(cdp, browser):
        return await asyncio.gather(cdp.call("A", n=1), cdp.call("B", n=2, session="s"))

    assert play(answer, scenario, events) == [{"to": 1}, {"to": 2}]
    assert [event["method"] for event in events] == ["Event"]


def test_a_refusal_names_the_method_and_what_the_browser_said() -> None:
    def answer(message):
        return [{"id": message["id"], "error": {"code": -1, "message": "no such target"}}]

    with pytest.raises(CDPError, match=r"Target\.close: no such target"):
        play(answer, lambda cdp, _: cdp.call("Target.close"))


def test_a_browser_that_hangs_is_not_waited_for() -> None:
    with pytest.raises(BrowserError, match=r"no answer within 0\.05 s"):
        play(lambda m: [], lambda cdp, _: cdp.call("Page.enable", timeout_s=0.05))


def test_a_browser_that_ends_fails_the_calls_that_wait_and_those_to_come() -> None:
    async def scenario(cdp, browser):
        call = asyncio.create_task(cdp.call("A"))
        await asyncio.sleep(0)
        browser.reader.feed_eof()
        with pytest.raises(BrowserGone):
            await call
        with pytest.raises(BrowserGone):
            await cdp.call("B")
        assert cdp.gone

    play(lambda m: [], scenario)
