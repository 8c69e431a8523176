"""Element lists as OmniParser writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cua_lab.dataset.omniparser import draw, element_boxes, read_elements, smallest_at
from cua_lab.errors import LabError

PARSED = [
    {
        "type": "text",
        "bbox": [0.7436164617538452, 0.1010194644331932, 0.7821782231330872, 0.1269694119691848],
        "interactivity": False,
        "content": " Replace",
        "source": "box_ocr_content_ocr",
    },
    {
        "type": "icon",
        "bbox": [0.70, 0.09, 0.80, 0.14],
        "interactivity": True,
        "content": None,
        "source": "box_yolo_content_yolo",
        "score": 0.7,
    },
]


def test_reading_and_writing_loses_nothing():
    assert [element.to_row() for element in read_elements(PARSED)] == PARSED


def test_the_servers_answer_and_the_demos_text_are_the_same_list():
    answer = {"som_image_base64": "...", "parsed_content_list": PARSED, "latency": 0.6}
    text = "\n".join(f"icon {index}: {item}" for index, item in enumerate(PARSED))
    assert read_elements(answer) == read_elements(text) == read_elements(PARSED)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "bbox": st.lists(
                    st.floats(-0.02, 1.02) | st.integers(0, 1) | st.booleans(), max_size=5
                )
            },
            optional={"type": st.text(max_size=3) | st.none(), "content": st.text() | st.none()},
        )
        | st.none(),
        max_size=3,
    )
)
def test_the_fast_reader_agrees_with_the_thorough_one(parsed):
    try:
        expected = [element.bbox for element in read_elements(parsed)]
    except LabError:
        with pytest.raises(LabError):
            element_boxes(parsed)
    else:
        assert element_boxes(parsed) == expected


@pytest.mark.parametrize(
    "parsed",
    [
        7,
        None,
        "icon 0: not python",
        [5],
        [{"bbox": [1, 2]}],
        [{"bbox": [0.5, 0.1, 0.4, 0.2]}],
        [{"bbox": [100, 100, 200, 200]}],
        [{"bbox": [True, 0, 1, 1]}],
        [{"bbox": [0, 0, 1, 1], "content": 5}],
    ],
)
def test_other_things_are_refused_with_what_was_expected(parsed):
    with pytest.raises(LabError):
        read_elements(parsed)


def test_a_click_reaches_the_smallest_element_under_it():
    text, icon = read_elements(PARSED)
    assert smallest_at((icon, text), (0.75, 0.11)) is text
    assert smallest_at((icon, text), (0.71, 0.10)) is icon
    assert smallest_at((icon, text), (0.1, 0.1)) is None


def test_drawing_marks_a_copy():
    screen = Image.new("RGB", (200, 100), "white")
    marked = draw(screen, read_elements(PARSED), target=(0.2, 0.2, 0.4, 0.6))
    assert screen.getextrema() == ((255, 255),) * 3
    assert marked.getpixel((40, 40)) == (209, 36, 47)
    assert marked.getpixel((79, 59)) == (209, 36, 47)
