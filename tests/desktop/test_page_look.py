"""What a page says about a point: whatever tricks the page plays, its own scripts have no say."""

import asyncio

import pytest

from cua_lab.desktop import background
from cua_lab.desktop.page_server import PageServer
from cua_lab.desktop.screen_context import looker_of, unknown
from cua_lab.envs.browser_screen import BrowserScreen

pytestmark = pytest.mark.browser
BOX = "position:absolute;left:0;top:0;width:200px;height:100px"


@pytest.fixture
def looked(desktops, tmp_path):
    """Show a page of this body, do something on it, and look at (50, 50)."""

    def look(body, *, then="1", at=(50, 50), known=True):
        (tmp_path / "page.html").write_text(f"<!doctype html><title>A title</title>{body}")
        server = PageServer({"pages": tmp_path})

        async def scenario():
            async with asyncio.timeout(60), desktops.lend() as desktop:
                await desktop.show(server.url("pages/page.html"))
                await desktop.evaluate(then)
                context = await looker_of(desktop.url)(at, None)
                desktop.faults.clear()
                return context

        context = asyncio.run(scenario())
        assert context.known or not known, context.why
        return context

    return look


def test_a_button_of_a_form(looked) -> None:
    context = looked(
        f'<form action="http://evil.example/x" method=post><input type=password>'
        f'<button style="{BOX}">Pay now</button></form>'
    )
    button = context.pointed
    assert (button.role, button.name, button.kind) == ("button", "Pay now", "submit")
    assert button.form.action == "http://evil.example/x"
    assert (button.form.method, button.form.button, button.form.secret) == ("post", "Pay now", True)
    assert context.title == "A title"
    assert ".localhost" in context.url


def test_a_link_and_what_has_the_focus(looked) -> None:
    context = looked(
        f'<a href="/b" style="{BOX}"><b>More</b></a><input id=i aria-label=Code '
        'autocomplete="one-time-code">',
        then="document.getElementById('i').focus()",
    )
    assert context.pointed.role == "link"
    assert context.pointed.href.endswith("/b")
    assert (context.focused.name, context.focused.kind) == ("Code", "one-time-code")


def test_all_names_of_an_element_are_told(looked) -> None:
    """A label for screen readers may say something else than what stands there."""
    name = looked(f'<button aria-label="Continue" style="{BOX}">Delete all</button>').pointed.name
    assert "Continue" in name
    assert "Delete all" in name


def test_an_empty_place_is_known_to_be_empty(looked) -> None:
    context = looked("<p>Hello</p>", at=(300, 300))
    assert context.known
    assert context.pointed is None
    assert context.focused is None


@pytest.mark.parametrize(
    "inner",
    [
        f"<canvas style='{BOX}'></canvas>",
        f"<iframe style='{BOX}' sandbox srcdoc='<button>Pay</button>'></iframe>",
        f"<iframe style='{BOX}' src='data:text/html,<button>Pay</button>'></iframe>",
        f"<x-panel style='{BOX}'></x-panel>",
    ],
)
def test_what_cannot_be_looked_into_is_unseen(looked, inner) -> None:
    assert looked(inner).pointed.role == "unseen"


def test_a_closed_shadow_is_unseen_and_an_open_one_is_seen(looked) -> None:
    body = f"<x-a style='display:block;{BOX}'></x-a>"
    fill = ".innerHTML = '<button style=\"width:200px;height:100px\">Send</button>'"
    shadow = "document.querySelector('x-a').attachShadow({mode: '%s'})" + fill
    assert looked(body, then=shadow % "closed").pointed.role == "unseen"
    assert looked(body, then=shadow % "open").pointed.name == "Send"


def test_a_frame_of_the_same_site_is_looked_into(looked) -> None:
    inner = "<body style=margin:0><button style=width:200px;height:100px>Delete</button>"
    pointed = looked(f'<iframe style="{BOX};border:0" srcdoc="{inner}"></iframe>').pointed
    assert (pointed.role, pointed.name) == ("button", "Delete")


@pytest.mark.parametrize(
    "trick",
    [
        "document.elementFromPoint = () => document.createElement('p')",
        "Document.prototype.elementFromPoint = () => null",
        "Element.prototype.matches = () => false",
        "Object.defineProperty(HTMLElement.prototype, 'innerText', {get: () => 'Continue'})",
        "globalThis.look = () => ({active: true, url: '', title: ''})",
        "Array.prototype.filter = () => []",
        "JSON.stringify = () => 'null'",
    ],
)
def test_a_page_s_scripts_cannot_answer_for_it(looked, trick) -> None:
    assert looked(f'<button style="{BOX}">Delete</button>', then=f"{trick}; 1").pointed.name == (
        "Delete"
    )


def test_a_page_s_names_cannot_hide_the_methods(looked) -> None:
    """An element's name or id stands before the document's own methods, and a form's fields before
    the form's (DOM clobbering)."""
    clobber = "".join(
        f'<img name="{name}">' for name in ("elementFromPoint", "activeElement", "hasFocus")
    )
    fields = "".join(
        f'<input type=hidden name="{n}">' for n in ("action", "method", "getAttribute")
    )
    button = f'<button style="{BOX}">Send</button>'
    context = looked(f'{clobber}<form action="http://evil.example/" method=post>{fields}{button}')
    assert context.pointed.form.action == "http://evil.example/"
    assert context.pointed.form.method == "post"


def test_a_dialog_of_the_browser_makes_the_screen_unknown(looked) -> None:
    context = looked("<p>x", then="setTimeout(() => alert('Pay?'), 0); new Promise(r => r(1))",
                     known=False)  # fmt: skip
    assert not context.known


def test_a_page_that_comes_after_another_is_asked_in_its_own_world(looked) -> None:
    """Ids of worlds are counted anew in each renderer: an old one may be the next page's own."""
    spoof = "globalThis.look = () => ({active: true, url: '', title: 'spoofed', pointed: null})"
    for _ in range(4):
        context = looked(
            f'<button style="{BOX}">Delete</button><iframe srcdoc=x></iframe>', then=spoof
        )
        assert (context.title, context.pointed.name) == ("A title", "Delete")


def test_zoom_is_counted(looked) -> None:
    """Points are pixels of the screen, whatever a page's own zoom is."""
    body = f'<style>body{{zoom:2}}</style><button style="{BOX}">Far</button>'
    assert looked(body, at=(380, 180)).pointed.name == "Far"


def test_a_screen_that_is_closed_is_forgotten() -> None:
    async def scenario():
        desk = BrowserScreen((320, 300))
        url = (await desk.open()).url
        known = (await looker_of(url)(None, None)).known
        await desk.close()
        return known, await looker_of(url)(None, None)

    known, after = background.wait(scenario())
    assert known
    assert after.known is False
    assert after.why == unknown("this desktop is in another process and cannot be asked what is on"
                                " it").why  # fmt: skip
