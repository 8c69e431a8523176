"""Grounding samples from web pages: the DOM's own boxes, taken through CDP, and a screenshot.

In a page (any CDP client: Playwright's `page.evaluate`, `Runtime.evaluate` with `returnByValue`):

    boxes = evaluate(DOM_BOXES)     # [{"tag", "role", "name", "text", "x", "y", "width", "height"}]
    shot  = capture_screenshot()    # `Page.captureScreenshot`, the viewport only
    ratio = evaluate("devicePixelRatio")

`DOM_BOXES` lists what is visible in the viewport and not covered by something else at its middle.
Boxes are in CSS pixels from the viewport's corner; `ratio` turns them into the screenshot's pixels.

Invariant: only a name that one box on the page bears becomes an instruction.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cua_lab.dataset.grounding import GroundingSample, numbers_of
from cua_lab.dataset.instructions import normalise
from cua_lab.dataset.jsonl import show
from cua_lab.dataset.spaces import Size
from cua_lab.dataset.synthetic import NamedBox, sample_for
from cua_lab.errors import LabError

DOM_BOXES = """(() => {
  const found = [];
  const roles = {a: 'link', button: 'button', input: 'field', select: 'list', textarea: 'field'};
  for (const e of document.querySelectorAll(
      'a[href], button, input, select, textarea, [role], [onclick], [tabindex]')) {
    const r = e.getBoundingClientRect(), s = getComputedStyle(e);
    const x = r.x + r.width / 2, y = r.y + r.height / 2;
    if (r.width < 4 || r.height < 4 || x < 0 || y < 0 || x >= innerWidth || y >= innerHeight)
      continue;
    if (s.visibility !== 'visible' || s.opacity === '0' || e.disabled) continue;
    const top = document.elementFromPoint(x, y);
    if (!top || !(e.contains(top) || top.contains(e) && top.closest('label'))) continue;
    const label = e.labels && e.labels[0] ? e.labels[0].innerText : '';
    const name = e.getAttribute('aria-label') || label || e.innerText || e.placeholder ||
      e.getAttribute('title') || e.getAttribute('alt') || (e.type === 'submit' ? e.value : '');
    found.push({tag: e.tagName.toLowerCase(), role: e.getAttribute('role') ||
      (e.type === 'checkbox' || e.type === 'radio' ? e.type : '') ||
      (e.type === 'submit' ? 'button' : roles[e.tagName.toLowerCase()] || 'element'),
      name: (name || '').trim().replace(/\\s+/g, ' ').slice(0, 80), text: e.innerText || '',
      x: r.x, y: r.y, width: r.width, height: r.height});
  }
  return found;
})()"""
"""The expression that lists a page's boxes; pure, it changes nothing on the page."""
NAMED_ROLE = (
    'Click the "{name}" {role}.',
    'Click on "{name}".',
    'Select the {role} named "{name}".',
    'Find the {role} "{name}" and click it.',
)


def page_samples(
    boxes: Iterable[Mapping[str, Any]],
    *,
    screenshot: str,
    size: Size,
    ratio: float = 1.0,
    count: int | None = None,
    seed: int = 0,
    url: str | None = None,
    templates: tuple[str, ...] = NAMED_ROLE,
) -> Iterator[GroundingSample]:
    """Samples for the boxes of one page; `count` of them, or one for each that can be named.

    `size` is the screenshot's in pixels, `ratio` the page's `devicePixelRatio`.
    """
    things = [thing for box in boxes if (thing := _thing(box, size, ratio)) is not None]
    names = Counter(normalise(thing.content or "") for thing in things)
    usable = [thing for thing in things if thing.content and names[normalise(thing.content)] == 1]
    draw = random.Random(f"page/{seed}/{screenshot}")
    chosen = draw.sample(usable, len(usable) if count is None else min(count, len(usable)))
    for index, target in enumerate(chosen):
        words = draw.choice(templates).format(name=target.content, role=target.name)
        yield sample_for(
            target,
            things,
            screenshot=screenshot,
            size=size,
            instruction=words,
            draw=draw,
            extra={"source": "page"} | ({} if url is None else {"url": url}),
            id=f"page/{screenshot}/{seed}/{index}",
        )


def _thing(box: Mapping[str, Any], size: Size, ratio: float) -> NamedBox | None:
    """A DOM box as pixels of the screenshot, cut at its edges; `None` where nothing is left."""
    numbers = numbers_of([box.get(key) for key in ("x", "y", "width", "height")], 4)
    if numbers is None:
        raise LabError(f"a DOM box is {show(dict(box))}; expected numbers x, y, width, height")
    x, y, width, height = (number * ratio for number in numbers)
    x0, y0 = max(0.0, x), max(0.0, y)
    x1, y1 = min(size[0] - 1.0, x + width - 1), min(size[1] - 1.0, y + height - 1)
    if x1 - x0 < 3 or y1 - y0 < 3:
        return None
    name = str(box.get("name") or "")
    kind = "text" if box.get("text") else "icon"
    return NamedBox(str(box.get("role") or "element"), (x0, y0, x1, y1), kind, name or None)
