"""Difficulty: each feature moves the grade in its direction and gives its reason."""

import pytest

from cua_lab.dataset.difficulty import Curriculum, curriculum, easy_first, grade, look_alikes
from cua_lab.dataset.grounding import from_row
from cua_lab.errors import LabError


def sample(**changes):
    row = {
        "screenshot": "a.png",
        "instruction": "Open the menu",
        "action": "click",
        "coordinates": [0.5, 0.5],
        "bbox": [0.4, 0.4, 0.6, 0.6],
        "coordinate_space": "0-1",
    }
    return from_row(row | changes)


TINY = {"bbox": [0.5, 0.5, 0.51, 0.51], "coordinates": [0.505, 0.505]}
CORNER = {"coordinates": [0.99, 0.99], "bbox": [0.8, 0.8, 1.0, 1.0]}


def test_a_large_target_in_the_middle_is_easy_and_needs_no_reason():
    assert grade(sample()).level == "easy"
    assert grade(sample()).reasons == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (TINY, "covers 0.01% of the screen"),
        (CORNER, "98% of the way"),
        ({"steps": 9}, "takes 9 steps"),
        ({"instruction": "Open " * 40}, "200 characters"),
    ],
)
def test_each_feature_alone_makes_it_medium_with_its_reason(change, words):
    graded = grade(sample(**change))
    assert graded.level == "medium"
    assert any(words in reason for reason in graded.reasons)


def test_several_features_make_it_hard():
    assert grade(sample(**TINY, steps=9)).level == "hard"


def element(x: float, content: str = "x", kind: str = "icon", width: float = 0.1) -> dict:
    return {
        "type": kind,
        "bbox": [x, 0.4, x + width, 0.6],
        "interactivity": True,
        "content": content,
    }


def test_look_alikes_share_type_and_either_words_or_size():
    target = element(0.45, "Save")
    others = [
        element(0.1, "Open"),  # same size
        element(0.6, " save ", width=0.3),  # same words
        element(0.2, "Save", kind="text"),  # another type
        element(0.0, "Quit", width=0.01),  # neither
    ]
    assert look_alikes(sample(elements=[target, *others])) == 2


def test_without_elements_nobody_claims_to_have_counted():
    assert look_alikes(sample()) is None


def test_actions_without_a_point_are_graded_on_what_they_have():
    wait = from_row({"screenshot": "a.png", "instruction": "Wait", "action": "wait"})
    assert grade(wait).level == "easy"


SET = [sample(id=f"e{n}") for n in range(4)]
SET += [sample(**TINY, id=f"m{n}") for n in range(4)]
SET += [sample(**TINY, steps=9, id=f"h{n}") for n in range(4)]


def test_a_curriculum_opens_levels_in_order_and_reviews():
    batches = list(curriculum(SET, batches=10, batch_size=50, seed=1))
    levels = [{grade(s).level for s in batch} for batch in batches]
    assert levels[0] == {"easy"}
    assert levels[4] == {"easy", "medium"}
    assert levels[-1] == {"easy", "medium", "hard"}
    hard = sum(grade(s).level == "hard" for s in batches[-1])
    assert 30 <= hard <= 48  # about four in five


def test_a_curriculum_is_a_function_of_its_seed():
    def ids(seed):
        drawn = curriculum(SET, batches=6, batch_size=5, seed=seed)
        return [s.id for batch in drawn for s in batch]

    assert ids(1) == ids(1) != ids(2)


def test_a_file_of_hard_samples_only_still_gives_batches():
    (batch,) = curriculum(SET[8:], batches=1, batch_size=3, seed=0)
    assert {grade(s).level for s in batch} == {"hard"}


def test_easy_first_keeps_the_order_of_equals():
    assert [s.id for s in easy_first(SET[::-1])][:4] == ["e3", "e2", "e1", "e0"]


def test_bad_plans_are_refused():
    with pytest.raises(LabError, match="medium_from"):
        Curriculum(medium_from=0.8, hard_from=0.2)
    with pytest.raises(LabError, match="needs samples"):
        next(curriculum([], batches=1, batch_size=1, seed=0))
