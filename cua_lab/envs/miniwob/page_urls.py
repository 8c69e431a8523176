"""The MiniWoB++ pages: where they are, how an episode starts, what it earned.

The pages come with the `miniwob` package of PyPI, of which only the files are used: importing it
needs gymnasium and Selenium. Invariant: page and seed fix the task to the letter.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

from cua_lab.desktop.chromium import ChromiumDesktop
from cua_lab.desktop.page_server import PageServer
from cua_lab.errors import LabError

PAGE_WIDTH, PAGE_HEIGHT = 160, 210
"""CSS pixels of every page."""
# Beside the page is a panel with the last reward, and after an episode a START button that would
# begin another one: neither belongs to the task.
START = """
(async () => {
  const until = async (is) => { while (!is()) await new Promise(r => setTimeout(r, 5)); };
  const style = document.createElement("style");
  style.textContent = "html, body { overflow: hidden } #reward-display { display: none }";
  document.head.append(style);
  await until(() => core.cover_div);
  Math.seedrandom(%s);
  core.EPISODE_MAX_TIME = 3600000;
  core.startEpisodeReal();
  core.startEpisode = () => {};
  await until(() => WOB_TASK_READY);
  const said = core.getUtterance();
  return typeof said === "string" ? said : said.utterance;
})()
"""
OUTCOME = "({done: WOB_DONE_GLOBAL, reward: WOB_RAW_REWARD_GLOBAL, reason: WOB_REWARD_REASON})"


@functools.cache
def folder() -> Path:
    """Where the pages are."""
    spec = importlib.util.find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise LabError("MiniWoB++ is not installed: pip install -e '.[browser]'")
    return Path(spec.submodule_search_locations[0]) / "html"


@functools.cache
def names() -> tuple[str, ...]:
    """All pages: `click-button`, ..., and those of other folders as `flight/...`."""
    found = [path.stem for path in (folder() / "miniwob").glob("*.html")]
    found += [
        f"flight/{path.parent.name}/{path.stem}" for path in folder().glob("flight/*/wrapper.html")
    ]
    return tuple(sorted(found))


@functools.cache
def _server() -> PageServer:
    return PageServer({"html": folder()})


def url(page: str) -> str:
    """The address of a page on this machine."""
    if page not in names():
        import difflib

        near = difflib.get_close_matches(page, names(), n=3)
        raise LabError(
            f"no MiniWoB++ page {page!r}; "
            + (f"near: {', '.join(near)}" if near else f"there are {', '.join(names())}")
        )
    path = page if page.startswith("flight/") else f"miniwob/{page}"
    return _server().url(f"html/{path}.html")


async def begin(desktop: ChromiumDesktop, seed: int) -> str:
    """Start the episode of a page that is shown; the task in words."""
    said = str(await desktop.evaluate(START % json.dumps(str(seed))))
    await desktop.drawn()
    return said


async def outcome(desktop: ChromiumDesktop) -> dict[str, Any]:
    """`done`, `reward` (-1 to 1, without the benchmark's discount for time) and `reason`."""
    found = await desktop.evaluate(OUTCOME)
    assert isinstance(found, dict)
    return found
