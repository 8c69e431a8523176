"""Experts for MiniWoB++ pages, each a few lines: what a person would do, with the DOM for eyes.

`EXPERTS` maps a page to its expert. `UNSOLVED` says of pages that were tried why the tool cannot do
them. Invariant: an expert ends when its task is done; the episode's grade tells whether it was.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from cua_lab.demonstrators.expert_hands import Arguments, Expert, Hands, press, type_

Calls = AsyncIterator[Arguments]
SUBMIT = "#subbtn, #submit, button.secondary-action, .controls button, #controls button"


# ─── clicking ─────────────────────────────────────────────────────────


async def the_button(h: Hands) -> Calls:
    yield await h.click("#subbtn")


async def named_button(h: Hands) -> Calls:
    yield await h.click("#area button", h.quoted[0])


async def button_one(h: Hands) -> Calls:
    yield await h.click("#area button", "ONE")


async def one_then_two(h: Hands) -> Calls:
    yield await h.click("#area button", "ONE")
    yield await h.click("#area button", "TWO")


async def link(h: Hands) -> Calls:
    yield await h.click("#area .alink", h.quoted[0])


async def close_dialog(h: Hands) -> Calls:
    yield await h.click(".ui-dialog-titlebar-close")


async def dialog_button(h: Hands) -> Calls:
    if h.quoted[0] == "x":
        yield await h.click(".ui-dialog-titlebar-close")
    else:
        yield await h.click(".ui-dialog-buttonset button", h.quoted[0])


async def tab(h: Hands) -> Calls:
    yield await h.click("#area li a", h.match(r"(Tab #\d+)")[0])


async def link_in_a_tab(h: Hands) -> Calls:
    name = h.quoted[0]
    index = await h.js(
        "[...document.querySelectorAll('#area > div')].findIndex(d => "
        f"[...d.querySelectorAll('.alink')].some(a => a.textContent === {name!r}))"
    )
    yield await h.click("#area li a", nth=index)
    yield await h.click("#area .alink", name)


async def link_or_other_tab(h: Hands) -> Calls:
    """The second tab is empty: opening it is right when the first has no such link, else wrong."""
    name = h.quoted[0]
    here = await h.js(
        f"[...document.querySelectorAll('#tabs-1 .alink')].some(a => a.textContent === {name!r})"
    )
    yield await (h.click("#tabs-1 .alink", name) if here else h.click("#area li a", nth=1))


async def expand_and_submit(h: Hands) -> Calls:
    yield await h.click("#area h3")
    await h.until("!$(':animated').length")
    yield await h.click("#subbtn")


async def link_in_a_section(h: Hands) -> Calls:
    name = h.quoted[0]
    index = await h.js(
        "[...document.querySelectorAll('#area > div')].findIndex(d => "
        f"[...d.querySelectorAll('.alink')].some(a => a.textContent === {name!r}))"
    )
    yield await h.click("#area h3", nth=index)
    await h.until("!$(':animated').length")
    yield await h.click("#area .alink", name)


async def check_boxes(h: Hands) -> Calls:
    names = h.match(r"Select (.*) and click")[0]
    for name in [] if names == "nothing" else names.split(", "):
        yield await h.click("#area label", name)
    yield await h.click(SUBMIT)


async def widget(h: Hands) -> Calls:
    yield await h.click(f"#area [data-type='{h.quoted[0]}']")


async def colour(h: Hands) -> Calls:
    yield await h.click(f"#area [data-color='{h.match(r'the (.*) colored')[0]}']")


async def shades(h: Hands) -> Calls:
    name = h.match(r"shades of (\w+)")[0]
    css = f"#area span[data-color='{name}']"
    for i in range(await h.js(f"document.querySelectorAll({css!r}).length")):
        yield await h.click(css, nth=i)
    yield await h.click(SUBMIT)


async def shape_name(h: Hands) -> Calls:
    kinds = {"rect": "rectangle", "circle": "circle", "polygon": "triangle"}
    tag, text = await h.js(
        "(e => [e.tagName, e.textContent])(document.querySelector('#area_svg > *'))"
    )
    kind = kinds.get(tag) or ("digit" if text.isdigit() else "letter")
    yield await h.click(f"#area button[data-type='{kind}']")


async def grid_point(h: Hands) -> Calls:
    x, y = h.match(r"\((-?\d+),\s*(-?\d+)\)")
    yield await h.click(f"[id='({x},{y})']")


async def ascending(h: Hands) -> Calls:
    count = await h.js("document.querySelectorAll('#area_svg text').length")
    clicks = [await h.click("#area_svg text", str(number + 1)) for number in range(count)]
    for click in clicks:  # the first hides the numbers
        yield click


async def centre_of_circle(h: Hands) -> Calls:
    yield await h.click("#svg-grid circle")
    yield await h.click(SUBMIT)


async def odd_or_even(h: Hands) -> Calls:
    numbers = await h.js(
        "[...document.querySelectorAll('.display-number')].map(e => Number(e.textContent))"
    )
    for i, number in enumerate(numbers):
        yield await h.click(f"#area button.{'odd' if number % 2 else 'even'}", nth=i)
    yield await h.click(SUBMIT)


async def greatest_card(h: Hands) -> Calls:
    values = await h.js(
        "[...document.querySelectorAll('.card-value')].map(e => Number(e.textContent))"
    )
    yield await h.click(".card", nth=values.index(max(values)))
    yield await h.click(SUBMIT)


async def bisect(h: Hands) -> Calls:
    """The point on the bisector at the mean length of the two legs."""
    import math

    (bx, by), (ax, ay), (cx, cy) = [
        await h.at("#svg-grid circle.init-blue"),
        await h.at("#svg-grid circle.init-black"),
        await h.at("#svg-grid circle.init-black", nth=1),
    ]
    one, two = math.hypot(ax - bx, ay - by), math.hypot(cx - bx, cy - by)
    ux, uy = (ax - bx) / one + (cx - bx) / two, (ay - by) / one + (cy - by) / two
    length = math.hypot(ux, uy)
    yield h.click_at((bx + 35 * ux / length, by + 35 * uy / length))
    yield await h.click(SUBMIT)


# ─── writing ──────────────────────────────────────────────────────────


async def quoted_text(h: Hands) -> Calls:
    text = h.quoted[0]
    if "upper case" in h.said:
        text = text.upper()
    elif "lower case" in h.said:
        text = text.lower()
    yield await h.click("#tt")
    yield type_(text)
    yield await h.click(SUBMIT)


async def password_twice(h: Hands) -> Calls:
    yield await h.click("#password")
    yield type_(f"{h.quoted[0]}\t{h.quoted[0]}")
    yield await h.click(SUBMIT)


async def login(h: Hands) -> Calls:
    yield await h.click("#username")
    yield type_(f"{h.quoted[0]}\t{h.quoted[1]}")
    yield await h.click(SUBMIT)


async def the_field(h: Hands) -> Calls:
    yield await h.click("#tt")


async def nth_field(h: Hands) -> Calls:
    yield await h.click("#tt" + h.match(r"the (\d)")[0])


async def date(h: Hands) -> Calls:
    month, day, year = h.match(r"(\d+)/(\d+)/(\d+)")
    left, top, _, height = await h.box("#tt")
    yield h.click_at((left + 8, top + height / 2))
    yield type_(f"{month}{day}{year}")
    yield await h.click(SUBMIT)


async def time_of_day(h: Hands) -> Calls:
    hour, minute, half = h.match(r"(\d+):(\d+) ([AP]M)")
    left, top, _, height = await h.box("#tt")
    yield h.click_at((left + 8, top + height / 2))
    yield type_(f"{int(hour):02}{minute}{half[0]}")
    yield await h.click(SUBMIT)


async def table_value(h: Hands) -> Calls:
    key = h.match(r"value of (.*) into")[0]
    yield await h.click("#tt")
    yield type_(await _cell(h, key))
    yield await h.click(SUBMIT)


async def table_values(h: Hands) -> Calls:
    for i in (1, 2):
        key = await h.js(f"document.querySelector('#ll{i}').dataset.key")
        yield await h.click(f"#tt{i}")
        yield type_(await _cell(h, key))
    yield await h.click(SUBMIT)


async def _cell(h: Hands, key: str) -> str:
    found = await h.js(
        f"[...document.querySelectorAll('#tab tr')].find(r => r.cells[0].textContent === {key!r})"
        ".cells[1].textContent"
    )
    return str(found)


async def arithmetic(h: Hands) -> Calls:
    sum_ = str(await h.js("document.querySelector('#math-problem').textContent"))
    found = re.match(r"\s*(-?\d+)\s*([-+x])\s*(-?\d+)", sum_)
    assert found
    a, sign, b = int(found[1]), found[2], int(found[3])
    yield await h.click("#math-answer")
    yield type_(str({"+": a + b, "-": a - b, "x": a * b}[sign]))
    yield await h.click(SUBMIT)


async def algebra(h: Hands) -> Calls:
    """a op b = c with one x in it."""
    left, right = (await h.js("document.querySelector('#math-problem').textContent")).split("=")
    first, sign, second = left.split()
    total, plus = int(right), sign == "+"
    if first == "x":
        answer = total - int(second) if plus else total + int(second)
    else:
        answer = total - int(first) if plus else int(first) - total
    yield await h.click("#math-answer")
    yield type_(str(answer))
    yield await h.click(SUBMIT)


async def count_blocks(h: Hands) -> Calls:
    yield await h.click("#math-answer")
    yield type_(str(await h.js("document.querySelectorAll('.addition-block').length")))
    yield await h.click(SUBMIT)


async def nth_word(h: Hands) -> Calls:
    words = str(await h.js("document.querySelector('#area p').textContent")).split()
    word = words[int(h.match(r"the (\d+)")[0]) - 1]
    yield await h.click("#answer-input")
    yield type_(re.sub(r"[.,]+$", "", word))
    yield await h.click(SUBMIT)


async def captcha(h: Hands) -> Calls:
    yield await h.click("#tt")
    yield type_(str(await h.js("document.querySelector('#captcha').textContent.trim()")))
    yield await h.click(SUBMIT)


async def last_word(h: Hands) -> Calls:
    text = str(await h.js("document.querySelector('#text-area').value"))
    yield await h.click("#answer-input")
    yield type_(text.split()[-1].rstrip(".,"))
    yield await h.click(SUBMIT)


async def copy_paste(h: Hands) -> Calls:
    yield await h.click("#to-copy")
    yield press("ctrl+a", "ctrl+c")
    yield await h.click("#answer-input")
    yield press("ctrl+v")
    yield await h.click(SUBMIT)


async def copy_one_of_three(h: Hands) -> Calls:
    yield await h.click("#text-" + h.match(r"the (\d)")[0])
    yield press("ctrl+a", "ctrl+c")
    yield await h.click("#answer-input")
    yield press("ctrl+v")
    yield await h.click(SUBMIT)


# ─── widgets ──────────────────────────────────────────────────────────


async def choose_from_list(h: Hands) -> Calls:
    """A native list: its popup is a window of its own, so keys do it."""
    name = h.match(r"Select (.*) from")[0]
    options = await h.js("[...document.querySelector('#options').options].map(o => o.text)")
    yield await h.click("#options")
    yield press(*["home"], *["down"] * options.index(name), "enter")
    yield await h.click(SUBMIT)


async def autocomplete(h: Hands) -> Calls:
    start, end = h.quoted[0], h.quoted[1] if len(h.quoted) > 1 else ""
    yield await h.click("#tags")
    yield type_(start)
    await h.until("[...document.querySelectorAll('.ui-menu-item')].some(e => e.offsetHeight)")
    names = await h.js("[...document.querySelectorAll('.ui-menu-item')].map(e => e.textContent)")
    yield press(*["down"] * (next(i for i, n in enumerate(names) if n.endswith(end)) + 1), "enter")
    yield await h.click(SUBMIT)


async def spinner(h: Hands) -> Calls:
    value = int(h.match(r"Select (-?\d+)")[0])
    yield await h.click("#spinner")
    if value:  # it counts from 0, and takes no notice of what is typed until it is left
        yield press(*["up" if value > 0 else "down"] * abs(value))
    yield await h.click(SUBMIT)


async def slider(h: Hands) -> Calls:
    for call in await _slide(h, "#slider", int(h.match(r"Select (-?\d+)")[0])):
        yield call
    yield await h.click(SUBMIT)


async def three_sliders(h: Hands) -> Calls:
    wanted = h.match(r"\[(\d+),\s*(\d+),\s*(\d+)\]")
    for i, value in enumerate(wanted, start=1):
        for call in await _slide(h, f"#slider-{i}", int(value)):
            yield call
    yield await h.click(SUBMIT)


async def _slide(h: Hands, css: str, wanted: int) -> list[Arguments]:
    """Focus the handle and walk: a slider moves by one with an arrow key."""
    now = int(await h.js(f"$({css!r}).slider('value')"))
    steps = wanted - now
    keys = ["right" if steps > 0 else "left"] * abs(steps)
    return [await h.click(f"{css} .ui-slider-handle"), *([press(*keys)] if keys else [])]


async def slider_and_box(h: Hands) -> Calls:
    value, box = h.match(r"Select (-?\d+) with the slider, click the (\d)")
    for call in await _slide(h, "#slider", int(value)):
        yield call
    yield await h.click(f"#checkbox-{box}")
    yield await h.click(SUBMIT)


async def radio_and_field(h: Hands) -> Calls:
    radio, number, field = h.match(r'the (\d)\w+ radio .* number "(-?\d+)" into the (\d)')
    yield await h.click("#area input[type=radio]", nth=int(radio) - 1)
    yield await h.click(f"#input-{field}")
    yield type_(number)
    yield await h.click(SUBMIT)


async def scroll_to_an_end(h: Hands) -> Calls:
    x, y = h.said_as(await h.at("#text-area"))
    clicks = -30 if "top" in h.said else 30
    yield {"action": "scroll", "x": x, "y": y, "scroll_y": clicks}
    yield await h.click(SUBMIT)


async def box_into_box(h: Hands) -> Calls:
    start, end = await h.at("#draggableSmall"), await h.at("#draggableLarge")
    yield h.drag(start, end)
    yield await h.click(SUBMIT)


async def drag_a_shape(h: Hands) -> Calls:
    x, y = await h.at("#area svg > *")
    ways = {"left": (-30, 0), "right": (30, 0), "up": (0, -25), "down": (0, 25)}
    dx, dy = ways[h.match(r"(left|right|up|down)")[0]]
    yield h.drag((x, y), (x + dx, y + dy))
    yield await h.click(SUBMIT)


async def highlight(h: Hands) -> Calls:
    left, top, width, height = await h.box("#randomText")
    yield h.click_at((left + min(20, width / 2), top + min(6, height / 2)), "triple_click")
    yield await h.click(SUBMIT)


async def resize(h: Hands) -> Calls:
    left, top, width, height = await h.box(".ui-resizable")
    corner = (left + width - 3, top + height - 3)
    grow = {"height": (0, 1), "width": (1, 0)}[h.match(r"the (height|width)")[0]]
    size = 20 if "larger" in h.said else -15
    yield h.drag(corner, (corner[0] + grow[0] * size, corner[1] + grow[1] * size))
    yield await h.click(SUBMIT)


async def tree(h: Hands) -> Calls:
    """Open the folders above it, from the top."""
    name = h.quoted[0]
    above = await h.js(
        f"(e => {{ const up = []; for (e = e.parentElement.parentElement; e.id !== 'tree';"
        " e = e.parentElement) if (e.tagName === 'LI') up.unshift(e.querySelector('span')"
        ".textContent); return up; })([...document.querySelectorAll('#tree span')]"
        f".find(e => e.textContent === {name!r}))"
    )
    for folder in above:
        yield await h.click("#tree span", folder)
    yield await h.click("#tree span", name)


EXPERTS: dict[str, Expert] = {
    "ascending-numbers": ascending,
    "bisect-angle": bisect,
    "choose-list": choose_from_list,
    "circle-center": centre_of_circle,
    "click-button": named_button,
    "click-button-sequence": one_then_two,
    "click-checkboxes": check_boxes,
    "click-checkboxes-large": check_boxes,
    "click-checkboxes-transfer": check_boxes,
    "click-collapsible": expand_and_submit,
    "click-collapsible-nodelay": expand_and_submit,
    "click-collapsible-2": link_in_a_section,
    "click-collapsible-2-nodelay": link_in_a_section,
    "click-color": colour,
    "click-dialog": close_dialog,
    "click-dialog-2": dialog_button,
    "click-link": link,
    "click-option": check_boxes,
    "click-shades": shades,
    "click-tab": tab,
    "click-tab-2": link_in_a_tab,
    "click-tab-2-easy": link_in_a_tab,
    "click-tab-2-medium": link_or_other_tab,
    "click-test": the_button,
    "click-test-2": button_one,
    "click-test-transfer": button_one,
    "click-widget": widget,
    "copy-paste": copy_paste,
    "copy-paste-2": copy_one_of_three,
    "drag-box": box_into_box,
    "drag-circle": drag_a_shape,
    "drag-single-shape": drag_a_shape,
    "enter-date": date,
    "enter-password": password_twice,
    "enter-text": quoted_text,
    "enter-text-2": quoted_text,
    "enter-text-dynamic": quoted_text,
    "enter-time": time_of_day,
    "find-greatest": greatest_card,
    "find-word": nth_word,
    "focus-text": the_field,
    "focus-text-2": nth_field,
    "form-sequence": slider_and_box,
    "form-sequence-2": radio_and_field,
    "grid-coordinate": grid_point,
    "highlight-text": highlight,
    "identify-shape": shape_name,
    "login-user": login,
    "navigate-tree": tree,
    "odd-or-even": odd_or_even,
    "read-table": table_value,
    "read-table-2": table_values,
    "resize-textarea": resize,
    "scroll-text": last_word,
    "scroll-text-2": scroll_to_an_end,
    "simple-algebra": algebra,
    "simple-arithmetic": arithmetic,
    "text-transform": captcha,
    "unicode-test": named_button,
    "use-autocomplete": autocomplete,
    "use-autocomplete-nodelay": autocomplete,
    "use-slider": slider,
    "use-slider-2": three_sliders,
    "use-spinner": spinner,
    "visual-addition": count_blocks,
}
UNSOLVED: dict[str, str] = {
    "multi-layouts": "a dozen layouts with other names for the same fields: one expert for each",
    "click-scroll-list": "needs ctrl held during a click; the tool's click takes no modifier",
    "chase-circle": "needs the pointer on a moving circle all the time; a call is one position",
    "moving-items": "items fall faster than one call follows another",
    "simon-says": "shows a sequence that is gone before the next screenshot",
    "draw-circle": "needs a free-hand curve; the tool's drag is a straight line",
    "number-checkboxes": "the example is a picture: there is no DOM to read it from",
    "click-checkboxes-soft": "asks for synonyms, which an expert would need a thesaurus for",
}
