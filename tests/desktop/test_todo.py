"""The to-do list by keyboard and by mouse; everything a grader reads comes from its state."""

import json

import pytest

from cua_lab.desktop import keysyms as k
from cua_lab.desktop.app import LEFT, WHEEL_DOWN, WHEEL_UP
from cua_lab.desktop.apps import Todo, fonts, paint
from cua_lab.desktop.geometry import Box
from cua_lab.errors import LabError


def press(app, *keysyms):
    for keysym in keysyms:
        app.key(keysym, True)
        app.key(keysym, False)


def write(app, text):
    press(app, *[ord(letter) for letter in text])


def click(app, x, y, button=LEFT):
    app.pointer(x, y, 0)
    app.pointer(x, y, button)
    app.pointer(x, y, 0)


def texts(app):
    return [item["text"] for item in app.state()["items"]]


def test_a_seed_makes_the_list_to_the_last_pixel():
    one, two = Todo(seed=1), Todo(seed=2)
    assert one.draw().tobytes() != two.draw().tobytes()
    two.reset(1)
    assert (one.state(), one.draw().tobytes()) == (two.state(), two.draw().tobytes())
    write(two, "abc")
    press(two, k.TAB, k.TAB, k.RETURN)
    two.reset(1)
    assert (one.state(), one.draw().tobytes()) == (two.state(), two.draw().tobytes())


def test_typing_and_enter_adds_an_item():
    app = Todo(items=["One"])
    write(app, "Buy milk")
    press(app, k.RETURN)
    assert app.state()["items"][1] == {"text": "Buy milk", "done": False}
    assert (app.state()["text"], app.state()["focus"]) == ("", "field")


def test_the_add_button_adds_by_mouse_and_by_keyboard():
    app = Todo(items=[])
    write(app, "one")
    click(app, *app.boxes["add"].center)
    write(app, "two")
    press(app, k.TAB, 0x20)
    assert texts(app) == ["one", "two"]


@pytest.mark.parametrize("text", ["", "   "])
def test_a_blank_text_adds_nothing(text):
    app = Todo(items=[])
    write(app, text)
    press(app, k.RETURN)
    assert texts(app) == []


def test_items_are_checked_and_deleted_by_mouse():
    app = Todo(items=["a", "b", "c"])
    click(app, *app.boxes["check:1"].center)
    assert [item["done"] for item in app.state()["items"]] == [False, True, False]
    click(app, *app.boxes["check:1"].center)
    click(app, *app.boxes["delete:0"].center)
    assert app.state()["items"] == [{"text": "b", "done": False}, {"text": "c", "done": False}]


def test_tab_walks_through_every_widget_and_shift_tab_back():
    app = Todo(items=["a", "b"])
    seen = []
    for _ in app.widgets:
        press(app, k.TAB)
        seen.append(app.focus)
    assert seen == ["add", "check:0", "delete:0", "check:1", "delete:1", "field"]
    app.key(k.SHIFT_L, True)
    press(app, k.TAB)
    app.key(k.SHIFT_L, False)
    assert app.focus == "delete:1"
    press(app, k.ISO_LEFT_TAB)
    assert app.focus == "check:1"


def test_items_are_checked_and_deleted_by_keyboard():
    app = Todo(items=["a", "b", "c"])
    press(app, k.TAB, k.TAB, 0x20)  # check the first
    press(app, k.DOWN, k.RETURN)  # and the second
    press(app, k.DOWN, k.DELETE)  # delete the third
    assert [(i["text"], i["done"]) for i in app.state()["items"]] == [("a", True), ("b", True)]
    assert app.focus == "check:1"
    press(app, k.TAB, k.RETURN)
    press(app, k.RETURN)
    assert texts(app) == []
    assert app.focus == "field"


def test_the_caret_goes_where_it_is_sent_and_editing_happens_there():
    app = Todo(items=[])
    write(app, "helo")
    press(app, k.LEFT)
    write(app, "l")
    press(app, k.HOME)
    write(app, ">")
    press(app, k.END, k.BACKSPACE, k.HOME, k.DELETE, k.RIGHT)
    state = app.state()
    assert (state["text"], state["caret"]) == ("hell", 1)


def test_a_click_into_the_text_moves_the_caret_there():
    app = Todo(640, 600, items=[])
    write(app, "mmmmmmmmmm")
    box = app.boxes["field"]
    click(app, box.left + 1, box.center[1])
    assert app.state()["caret"] == 0
    click(app, box.right - 1, box.center[1])
    assert app.state()["caret"] == 10


def test_the_caret_is_seen_and_does_not_blink():
    app = Todo(items=[])
    write(app, "ab")
    at_end = app.draw().tobytes()
    press(app, k.LEFT)
    assert app.draw().tobytes() != at_end
    press(app, k.RIGHT)
    assert app.draw().tobytes() == at_end


@pytest.mark.parametrize(
    ("keysym", "shift", "typed"),
    [
        (ord("a"), True, "A"),
        (ord("A"), False, "A"),  # most clients send the shifted keysym alone
        (ord("A"), True, "A"),
        (ord("1"), True, "!"),
        (ord("!"), True, "!"),
        (0xE4, True, "Ä"),
        (0xDF, True, "ß"),
        (0x01000000 + ord("日"), False, "日"),
        (0x20AC, False, "€"),
        (0x6C1, False, "а"),  # Cyrillic_a of X11's old table
        *((0x01000000 + ord(c), False, c) for c in "\u3000\u2009\u200c\u200d\u00ad\ufe0f\ue000"),
        (0x01000378, False, ""),  # not assigned
        (0xFFB7, False, "7"),  # keypad
        (k.ESCAPE, False, ""),
        (0xFFBE, False, ""),  # F1
        (0x01110000, False, ""),  # beyond Unicode
        (0x0100D800, False, ""),  # a surrogate
        (0x01000007, False, ""),  # a control character
        (0xFFFFFFFF, False, ""),
    ],
)
def test_a_keysym_types_its_character(keysym, shift, typed):
    app = Todo(items=[])
    if shift:
        app.key(k.SHIFT_R, True)
    press(app, keysym)
    assert app.state()["text"] == typed
    app.draw()


@pytest.mark.parametrize(
    "letters",
    [
        "".join(map(chr, range(0xC0, 0x100))),
        "АБВГДЕЖЗабвгдежз",
        "ΑΒΓΔαβγδ",
        "אבגד",
        "ابتث",
        "日本語東京",
    ],
    ids=["latin", "cyrillic", "greek", "hebrew", "arabic", "cjk"],
)
def test_no_two_letters_look_alike(letters) -> None:
    """87 of Latin-1's 94 letters, and all of the others, were one box (python-pillow/Pillow#2779).
    What no font has is shown by its number."""
    masks = {paint.text_mask(letter, 16).tobytes() for letter in letters}
    assert len(masks) == len(letters)


def test_what_no_font_has_is_shown_by_its_number_and_joiners_take_no_room() -> None:
    assert fonts.shown("a日\u200db") == "a[U+65E5]b"
    assert paint.text_width("a\u200cb", 16) == paint.text_width("ab", 16)
    assert paint.text_width("a\u3000b", 16) > paint.text_width("ab", 16)


def test_the_caret_of_a_mixed_text_goes_where_it_is_clicked() -> None:
    app = Todo(640, 600, items=[])
    for char in "aЖ日é":
        press(app, 0x01000000 + ord(char))
    field, layout = app.field, app._layout
    ends = [paint.text_width(field.text[:i], layout.text) for i in range(5)]
    assert ends == sorted(set(ends))
    assert [layout.caret_at(field, layout.inside.left + end) for end in ends] == list(range(5))


def test_english_is_drawn_by_the_bundled_font_alone() -> None:
    """So that the screens of lessons and recordings stay what they were."""
    text = "".join(map(chr, range(0x20, 0x7F))) + "…"
    assert [face.getname()[0] for face, _ in fonts.runs(text, 24)] == ["Aileron"]


def test_commands_do_not_type_and_ctrl_a_selects_all():
    app = Todo(items=[])
    write(app, "old text")
    app.key(k.CONTROL_L, True)
    press(app, ord("c"), ord("a"))
    app.key(k.CONTROL_L, False)
    selected = app.draw().tobytes()
    write(app, "new")
    assert app.state()["text"] == "new"
    assert app.draw().tobytes() != selected


def test_a_list_longer_than_the_screen_scrolls_by_wheel_and_with_the_focus():
    app = Todo(items=[str(i) for i in range(12)])
    assert "check:0" in app.boxes
    assert "check:11" not in app.boxes
    for _ in range(30):
        click(app, 60, 60, WHEEL_DOWN)
    assert "check:0" not in app.boxes
    assert "check:11" in app.boxes
    click(app, 60, 60, WHEEL_UP)
    assert "check:11" not in app.boxes
    press(app, k.TAB, k.TAB)
    assert app.focus == "check:0"
    assert "check:0" in app.boxes
    press(app, *[k.DOWN] * 11)
    assert app.focus == "check:11"
    assert "check:11" in app.boxes
    press(app, *[k.DELETE] * 9)
    assert "check:0" in app.boxes
    assert len(app.items) == 3


@pytest.mark.parametrize("size", [(96, 96), (128, 128), (640, 600), (96, 400), (400, 96)])
def test_every_widget_is_on_the_screen_and_apart_from_the_others(size):
    app = Todo(*size, count=12)
    boxes = list(app.boxes.values())
    for i, box in enumerate(boxes):
        assert box.overlap(Box(0, 0, *size)) == box
        assert not any(box.overlap(other) for other in boxes[:i])
    app.draw()


def test_long_texts_are_cut_on_the_screen_only():
    app = Todo(items=["x" * 300])
    write(app, "y" * 2300)
    app.draw()
    assert len(texts(app)[0]) == 300
    assert len(app.state()["text"]) == 2000, "typing ends at the limit of one call"


def test_the_state_is_json_and_a_copy():
    app = Todo(seed=1)
    state = app.state()
    assert json.loads(json.dumps(state)) == state
    state["items"].clear()
    assert len(app.state()["items"]) == 3


def test_a_bad_argument_is_named():
    with pytest.raises(LabError, match="0 to 16"):
        Todo(count=99)
