"""The confirmer in a real browser: buttons, keys, the drawn action; a policy's words stay words."""

import base64
import io

import pytest
from PIL import Image

from cua_lab.lessons.confirm_widget import STATIC

HOSTILE = '<img src=x onerror="document.title=1">'


def screenshot():
    png = io.BytesIO()
    Image.new("RGB", (128, 128), (200, 220, 240)).save(png, "PNG")
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()


QUESTION = {
    "number": 3, "episode": "e1", "words": f"click x 20, y 90 {HOSTILE}", "thought": HOSTILE,
    "call": '{"action": "click", "x": 20, "y": 90}', "reason": f"high risk: delete: {HOSTILE}",
    "risk": "high", "screenshot": screenshot(), "at": [[0.25, 0.75]], "limit_s": 60, "asked": 1,
}  # fmt: skip
MODEL = """async ([source, css, question]) => {
  const style = document.createElement("style");
  style.textContent = css;
  document.head.append(style);
  const url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
  const widget = (await import(url)).default;
  const values = {question: {}, log: []}, heard = {};
  window.sent = [];
  const model = {get: (k) => values[k], on: (k, f) => { heard[k] = f; },
                 send: (m) => window.sent.push(m)};
  window.put = (k, v) => { values[k] = v; heard["change:" + k](); };
  widget.render({model, el: document.body});
  window.put("question", question);
}"""


@pytest.fixture
def asked(browser):
    page = browser.new_page()
    page.goto("about:blank")
    source, css = ((STATIC / f"confirm.{end}").read_text() for end in ("js", "css"))
    page.evaluate(MODEL, [source, css, QUESTION])
    yield page
    page.close()


def sent(page):
    return page.evaluate("window.sent")


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("approve (a)", "approve"), ("reject (r)", "reject"),
     ("approve all alike in this episode (l)", "approve_alike")],
)  # fmt: skip
def test_a_click_answers_the_question_by_its_number(asked, name, verdict) -> None:
    asked.get_by_role("button", name=name, exact=True).click()
    assert sent(asked) == [{"number": 3, "verdict": verdict}]


@pytest.mark.parametrize(
    ("key", "verdict"), [("a", "approve"), ("r", "reject"), ("Escape", "reject"),
                         ("l", "approve_alike")]
)  # fmt: skip
def test_a_key_answers_without_the_mouse(asked, key, verdict) -> None:
    asked.keyboard.press(key)
    assert sent(asked) == [{"number": 3, "verdict": verdict}]


def test_an_edited_call_is_sent_as_it_was_written(asked) -> None:
    asked.keyboard.press("e")
    editor = asked.get_by_label("the call to run instead, JSON")
    editor.fill('{"action": "screenshot", "a": "lra"}')
    editor.press("a")  # a letter of the text, not an answer
    assert sent(asked) == []
    asked.get_by_role("button", name="edit (e)").click()
    (message,) = sent(asked)
    assert message["verdict"] == "edit"
    assert message["call"].startswith('{"action": "screenshot"')


def test_the_action_is_drawn_where_it_points(asked) -> None:
    stage, mark = (
        asked.locator(f".{name}").last.bounding_box() for name in ("cf-screen", "cf-line")
    )
    across = (mark["x"] + mark["width"] / 2 - stage["x"]) / stage["width"]
    down = (mark["y"] + mark["height"] / 2 - stage["y"]) / stage["height"]
    assert across == pytest.approx(0.25, abs=0.02)
    assert down == pytest.approx(0.75, abs=0.02)


def test_a_policy_s_words_are_shown_as_words(asked) -> None:
    assert asked.title() != "1"
    assert HOSTILE in asked.locator(".cf-call").inner_text()
    assert asked.locator("img[src=x]").count() == 0


def test_nothing_can_be_answered_while_nothing_is_asked(asked) -> None:
    asked.evaluate("window.put('question', {})")
    asked.locator(".cua-confirm").focus()
    asked.keyboard.press("a")
    assert sent(asked) == []
    assert asked.locator(".cf-ask").is_hidden()
    asked.evaluate("window.put('log', ['click: rejected'])")
    assert "click: rejected" in asked.locator(".cf-log").inner_text()
