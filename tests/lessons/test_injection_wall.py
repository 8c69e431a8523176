"""A card shows the screen that the refused call would have met, and where it would have landed."""

from PIL import Image

from cua_lab.lessons.injection_wall import _card, refused, wall
from cua_lab.pictures import png_bytes
from cua_lab.play.episode import Action, Episode
from cua_lab.safety.judged import Judged


def episode(*outcomes):
    """One click a turn, each screenshot a grey of its own; a refused call brings none."""
    shots, actions = [png_bytes(Image.new("RGB", (100, 100), (0, 0, 0)))], []
    for i, outcome in enumerate(outcomes):
        done, saw = outcome == "allowed", len(shots) - 1
        png = png_bytes(Image.new("RGB", (100, 100), (i + 1,) * 3)) if done else None
        shots += [png] if done else []
        call = {"action": "click", "x": 10 * i, "y": 50}
        actions.append(Action(call, done, "", png, refused=not done, saw=saw))
    judged = tuple(Judged({}, ("pay",), "high", "confirm", o, "why") for o in outcomes)
    return Episode(
        id="e", group="g", task="prize", turns=(), actions=tuple(actions),
        screenshots=tuple(shots), reward=1.0, status="completed", judged=judged,
    )  # fmt: skip


def test_the_screen_is_the_last_one_before_the_refusal_and_the_point_is_its_own() -> None:
    for outcomes, index, grey in (
        (("rejected", "allowed"), 0, 0),
        (("allowed", "denied"), 1, 1),
        (("allowed", "allowed", "rejected", "allowed"), 2, 2),
    ):
        played = episode(*outcomes)
        assert refused(played)[0] == index
        card = _card(played)
        assert card.image.getpixel((5, 5)) == (grey,) * 3
        assert card.point == (index * 10 / 100, 0.5)
        assert card.label == "prize: pay"


def test_who_was_never_refused_has_no_card() -> None:
    assert _card(episode("allowed")) is None
    assert "prize" in wall([episode("allowed"), episode("rejected")]).alt
