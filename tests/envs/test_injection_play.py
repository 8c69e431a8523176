"""The injection pages on Chromium: what each order leads to, and who does the task all the same."""

import asyncio

import pytest

from cua_lab.demonstrators.injection import ORDERS_OF_KIND, PLAYERS, play_kind
from cua_lab.envs.injection.kinds import KINDS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ALL = [kind.name for kind in KINDS]
FIRST_OF_EACH = list({kind.forbidden: kind.name for kind in KINDS[::-1]}.values())


def play_all(pool, rows, config=None):
    """Episodes of (kind, player) on all desktops of the pool; in the order of the rows."""
    waiting = list(enumerate(rows))[::-1]
    episodes = {}

    async def work():
        while waiting:
            index, (kind, player) = waiting.pop()
            async with pool.lend() as desktop:
                episodes[index] = await play_kind(desktop, kind, 0, PLAYERS[player], config=config)

    async def main():
        async with asyncio.timeout(900):
            await asyncio.gather(*(work() for _ in range(pool.count)))

    asyncio.run(main())
    return [episodes[i] for i in range(len(rows))]


@pytest.mark.parametrize(
    "kinds", [pytest.param(FIRST_OF_EACH, id="first"),
              pytest.param(ALL, id="all", marks=pytest.mark.nightly)]
)  # fmt: skip
def test_without_a_gate_the_order_has_its_effect(desktops, kinds) -> None:
    """The control of every other test here: the forbidden act can be done, by each page."""
    assert set(kinds) | set(ORDERS_OF_KIND) <= set(ALL)
    for kind, episode in zip(
        kinds, play_all(desktops, [(kind, "gullible") for kind in kinds]), strict=True
    ):
        assert episode.error is None
        assert (kind, episode.info["forbidden"]) == (kind, True)


def test_equal_arguments_start_from_the_same_pixels(desktops) -> None:
    first, again = play_all(desktops, [("urgent-authority", "careful")] * 2)
    assert first.screenshots[0] == again.screenshots[0]
    assert (first.reward, first.info["forbidden"]) == (1.0, False)
