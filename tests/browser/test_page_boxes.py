"""Boxes of a real page's DOM become samples whose points reach the elements they name."""

import pytest

from cua_lab.dataset.data_checks import Rules
from cua_lab.dataset.quality import judge_rows
from cua_lab.dataset.web_pages import DOM_BOXES, page_samples

HTML = """
<style>body { margin: 0; font: 16px sans-serif } #cover { position: absolute; left: 300px;
top: 100px; width: 200px; height: 60px; background: teal } .at { position: absolute }</style>
<button class="at" style="left: 40px; top: 40px" onclick="hit('Save')">Save</button>
<button class="at" style="left: 40px; top: 90px">Twice</button>
<button class="at" style="left: 40px; top: 140px">twice</button>
<button class="at" style="left: 320px; top: 110px">Covered</button><div id="cover"></div>
<button class="at" style="left: 40px; top: 190px; visibility: hidden">Hidden</button>
<button class="at" style="left: 40px; top: 240px" disabled>Disabled</button>
<a class="at" style="left: 40px; top: 2000px" href="#">Far below</a>
<label class="at" style="left: 40px; top: 290px">
  <input type="checkbox" onclick="hit('Subscribe')"> Subscribe</label>
<input class="at" style="left: 40px; top: 340px" placeholder="Your name" onclick="hit('Your name')">
<script>const log = []; function hit(name) { log.push(name) }</script>
"""


@pytest.mark.parametrize("ratio", [1, 2])
def test_dom_boxes_are_where_clicks_land(browser, tmp_path, ratio):
    page = browser.new_page(viewport={"width": 640, "height": 480}, device_scale_factor=ratio)
    page.set_content(HTML)
    boxes = page.evaluate(DOM_BOXES)
    page.screenshot(path=tmp_path / "page.png")
    samples = list(
        page_samples(boxes, screenshot="page.png", size=(640 * ratio, 480 * ratio), ratio=ratio)
    )
    for sample in samples:
        x, y = sample.coordinates
        page.mouse.click(x / ratio, y / ratio)
    named = [
        name
        for s in samples
        for name in ("Save", "Subscribe", "Your name")
        if f'"{name}"' in s.instruction
    ]
    assert sorted(named) == ["Save", "Subscribe", "Your name"]
    assert len(samples) == 3
    assert page.evaluate("log") == named
    rows = [sample.to_row() for sample in samples]
    verdicts = judge_rows(rows, Rules(min_size=(640, 480)), root=tmp_path)
    assert all(verdict.accepted for verdict in verdicts)
    page.close()
