"""The README's pictures, from the finished run that comes with the package.

finished run ──▶ docs/before-after.png, docs/curves.png, docs/viewer.png

python tools/readme_pictures.py      (needs the extra `browser` and Chromium)
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from PIL import Image

from cua_lab.lessons.finished_run import FOLDER
from cua_lab.lessons.outcome import pairs_of
from cua_lab.viz import curves, filmstrip
from cua_lab.viz.runfiles import Run, episode_frames, read_run
from cua_lab.viz.viewer import MaskViewer

DOCS = Path(__file__).resolve().parent.parent / "docs"
STARTS = 4


def main() -> None:
    """Write all three."""
    run = read_run(FOLDER / "laptop")
    before_after(run).save(DOCS / "before-after.png", optimize=True)
    curves(run, title="Two tasks, over the steps of GRPO").savefig(
        DOCS / "curves.png", dpi=90, metadata={"Software": None}
    )
    viewer(run, DOCS / "viewer.png")


def before_after(run: Run) -> Image.Image:
    """The same starts by the warmed-up policy, and by the trained one below it."""
    pairs = pairs_of(run, "targets-click")[:STARTS]
    strips = []
    for when, episodes in zip(("before", "after"), zip(*pairs, strict=True), strict=True):
        frames = [episode_frames(run, episode)[0] for episode in episodes]
        title = f"Click the red button, {when} GRPO; the cross is where it clicked"
        strips.append(filmstrip(frames, title=title, columns=STARTS))
    sheet = Image.new("RGB", (strips[0].width, sum(s.height for s in strips)), "white")
    top = 0
    for strip in strips:
        sheet.paste(strip, (0, top))
        top += strip.height
    return sheet.quantize(64)


def viewer(run: Run, path: Path) -> None:
    """The mask viewer as a browser shows it, at the first sampled tokens."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page_file = MaskViewer(payload=run.viewer).save_html(Path(folder) / "viewer.html")
        chromium = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = chromium.new_page(viewport={"width": 1000, "height": 620}, color_scheme="light")
        page.goto(page_file.as_uri())
        page.wait_for_selector(".cl-t")
        page.keyboard.press("n")
        page.screenshot(path=path)
        chromium.close()


if __name__ == "__main__":
    main()
