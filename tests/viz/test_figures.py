"""Film strips, curves and group views."""

import numpy as np
import pytest
from PIL import Image

from cua_lab.errors import LabError
from cua_lab.play.episode import Action, Episode
from cua_lab.viz import Frame, curves, episode_frames, filmstrip, group_view, read_run
from cua_lab.viz.filmstrip import CELL, marked
from cua_lab.viz.frames import frames_of, key_summary, png_uri, screenshot_frames
from tests.viz.episodes import board, frame
from tests.viz.runs import CLICK, GAME, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return read_run(write_run(tmp_path_factory.mktemp("runs") / "laptop"))


def png(image: Image.Image) -> bytes:
    import base64

    return base64.b64decode(png_uri(image).split(",")[1])


def played(actions: int, screenshots: int) -> Episode:
    unseen = max(0, actions - screenshots)
    return seeing(screenshots, *(None if i < unseen else i - unseen for i in range(actions)))


def seeing(screenshots: int, *saw: int | None) -> Episode:
    """Click (i, 0) was the answer to screenshot `saw[i]`."""
    done = [
        Action({"action": "click", "x": i, "y": 0}, True, "", None, saw=seen)
        for i, seen in enumerate(saw)
    ]
    screens = tuple(png(board(i)) for i in range(screenshots))
    return Episode("e", "g", CLICK, (), tuple(done), screens, 1.0, "completed")


def test_the_click_is_drawn_where_the_policy_clicked():
    plain, clicked = marked(Frame(board(0))), marked(frame(0))
    changed = np.argwhere(np.any(np.asarray(plain) != np.asarray(clicked), axis=-1))  # (N, 2) y, x
    centre = changed.mean(axis=0)[::-1] / CELL
    assert centre == pytest.approx(frame(0).point, abs=0.02)


def test_each_screenshot_belongs_to_the_action_that_answered_it():
    assert [f.label for f in frames_of(played(3, 3))] == [f"click ({i}, 0)" for i in range(3)]


def test_without_the_first_screen_the_first_action_has_no_frame():
    assert [f.label for f in frames_of(played(3, 2))] == ["click (1, 0)", "click (2, 0)"]


def test_a_last_screen_that_nobody_answered_has_no_action():
    assert [f.label for f in frames_of(played(1, 2))] == ["click (0, 0)", ""]


def test_after_a_refused_call_each_action_is_on_the_screen_that_it_saw():
    """Paired by count, the second click stood on the third screen, and the third on none."""
    episode = seeing(3, 0, 0, 1)  # the first call was refused and brought no screenshot
    frames = frames_of(episode)
    assert [f.label for f in frames] == ["click (0, 0)", "click (1, 0)", "click (2, 0)", ""]
    screens = [np.asarray(board(i)).tobytes() for i in (0, 0, 1, 2)]
    assert [np.asarray(f.image).tobytes() for f in frames] == screens
    assert [len(frames) for frames in screenshot_frames(episode)] == [2, 1, 1]


def test_a_strip_is_as_long_as_the_episode_and_the_same_every_time(run):
    (after,) = run.pictured(GAME, "eval_after")
    frames = episode_frames(run, after)
    assert len(frames) == 4
    assert len(frames[0].keys) == 16
    one, two = filmstrip(frames), filmstrip(frames)
    assert one.size == two.size
    assert one.tobytes() == two.tobytes()
    assert filmstrip(played(2, 2)).size[0] < one.size[0]


def test_a_strip_of_nothing_is_refused():
    with pytest.raises(LabError, match="at least one frame"):
        filmstrip([])


def test_keys_in_a_row_are_counted():
    assert key_summary(["left", "left", "down", "left"]) == "left×2 down left"


def test_curves_draw_a_line_for_each_task_that_was_measured(run):
    figure = curves(run)
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles[0] == "Reward"
    assert len(figure.axes[0].lines) == 2
    success = figure.axes[titles.index("Success")]
    assert [line.get_label() for line in success.lines] == [CLICK]  # 2048 has no yes or no


def test_a_figure_shows_itself_without_pyplot(run):
    picture = curves(run)._repr_png_()
    assert picture.startswith(b"\x89PNG")
    assert picture == curves(run)._repr_png_()


def test_curves_of_a_run_that_goes_on_are_drawn_from_what_is_there(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"task": "t", "phase": "grpo", "step": 0, "reward_mean": 0.5}\n{"task": "t", ')
    figure = curves(tmp_path)
    assert figure.axes[0].lines[0].get_ydata() == [0.5]
    assert figure.axes[1].texts[0].get_text() == "not measured"


def test_a_group_shows_the_advantages_of_its_rewards_and_none_for_a_failure():
    figure = group_view([0.0, 1.0, None])
    heights = [bar.get_height() for bar in figure.axes[1].patches]
    assert heights == pytest.approx([-1, 1, 0], abs=1e-5)
    said = [text.get_text() for text in figure.axes[1].texts]
    assert said == ["-1.00", "+1.00"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["failed"]


def test_a_group_of_equal_rewards_says_that_it_teaches_nothing():
    """trl#5640: [1, 1, 1, 1] gives advantages of exactly 0, and it is shown."""
    figure = group_view([1.0] * 4)
    assert "nothing to learn" in figure.axes[1].get_title(loc="left")


def test_a_thought_stands_under_its_screen_and_a_misread_cell_in_red():
    right = Frame(board(0)).thinking("0030/0445 11 12 row", "0030/0445")
    wrong = Frame(board(0)).thinking("0030/0441 11 12 row", "0030/0445")
    assert (right.misread, wrong.misread) == ((), ((8, "5"),))

    def red(frame: Frame) -> int:
        below = np.asarray(filmstrip([frame]).crop((0, 240, 252, 320))).astype(int)
        return int(((below[..., 0] > 150) & (below[..., 1] < 80)).sum())

    assert red(right) == 0 < red(wrong)
    assert filmstrip([right]).height > filmstrip([Frame(board(0))]).height
