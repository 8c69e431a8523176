"""The report in a real browser: offline, without a complaint, in both themes."""

from cua_lab.viz.report import write_report
from tests.viz.runs import write_run


def test_the_report_opens_from_a_file_and_looks_right(page, artefacts, theme, tmp_path):
    path = write_report(write_run(tmp_path / "laptop"))
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.emulate_media(color_scheme=theme)
    page.goto(path.as_uri())
    page.wait_for_selector(".cl-t")
    assert page.complaints == []
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert page.locator("svg.chart").count() >= 10
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    broken = "() => [...document.images].filter((i) => !i.naturalWidth).length"
    assert page.evaluate(broken) == 0
    page.screenshot(path=artefacts / f"report-{theme}.png", full_page=True)


def test_the_report_fits_a_phone(page, artefacts, tmp_path):
    path = write_report(write_run(tmp_path / "laptop"))
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(path.as_uri())
    page.wait_for_selector(".cl-t")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=artefacts / "report-phone.png", full_page=True)
