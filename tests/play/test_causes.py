"""Failed episodes are counted by cause."""

from cua_lab.play.causes import causes_of, kind_of


def test_causes_that_differ_in_numbers_are_one() -> None:
    errors = ["port 5901 at 0x7f1a", "port 5902 at 0x7f2b", "grader  died", None]
    assert causes_of(errors) == [
        (2, "port 5901 at 0x7f1a"),
        (1, "grader died"),
        (1, "no reason given"),
    ]


def test_a_cause_has_one_name() -> None:
    assert kind_of("no frame within 10 s") == kind_of("no  frame\nwithin 3 s")
    assert kind_of("no frame") != kind_of("no screen")
