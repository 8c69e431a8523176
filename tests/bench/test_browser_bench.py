"""The real browser's bench judges frames by what the page must show, and keeps every action."""

import asyncio

import pytest

from cua_lab.bench.browser_bench import settled
from cua_lab.computer.settling import NoSettle, QuietFramebuffer
from cua_lab.lessons.settling_plot import settling_figure


@pytest.mark.browser
def test_a_frame_half_way_is_stale_and_one_at_rest_is_not(desktops) -> None:
    async def measure():
        async with desktops.lend() as desktop:
            quiet = await settled(desktop, "quiet", QuietFramebuffer(at_most_ms=3000), actions=3)
            return quiet, await settled(desktop, "no waiting", NoSettle(), actions=3)

    quiet, hasty = asyncio.run(measure())
    assert (quiet.actions, quiet.stale) == (3, 0)
    assert hasty.stale > 0
    assert hasty.ms < quiet.ms
    (axes,) = settling_figure({"a page that glides": [quiet, hasty]}).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["quiet", "no waiting"]
