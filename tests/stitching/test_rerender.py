"""Benign changes of a text: white space outside JSON strings, and JSON with equal values."""

import pytest

from cua_lab.stitching.rerender import changes

OPEN, CLOSE = "<tool_call>\n", "\n</tool_call>"


def kinds(emitted: str, rendered: str) -> set[str] | None:
    pieces = changes(emitted.encode(), rendered.encode())
    if pieces is None:
        return None
    assert sum(p.emitted for p in pieces) == len(emitted.encode())
    assert sum(p.rendered for p in pieces) == len(rendered.encode())
    return {p.change for p in pieces if p.change}


def call(arguments: str) -> str:
    return f'{OPEN}{{"name": "computer", "arguments": {arguments}}}{CLOSE}'


@pytest.mark.parametrize(
    ("emitted", "rendered"),
    [
        ("Click it.\n\n" + call("{}"), "Click it.\n" + call("{}")),
        ("Click it." + "\n" * 5 + call("{}"), "Click it.\n" + call("{}")),
        ("Click it." + call("{}"), "Click it.\n" + call("{}")),
        ("\n" + call("{}"), call("{}")),
        (call("{}") + call("{}"), call("{}") + "\n" + call("{}")),
        ("<tool_call>{}</tool_call>", "<tool_call>\n{}\n</tool_call>"),
        ("one\n\n\n\ntwo", "one\ntwo"),
        ("trailing  ", "trailing"),
    ],
)
def test_white_space_between_things_may_change(emitted, rendered):
    assert kinds(emitted, rendered) == {"white_space"}


@pytest.mark.parametrize(
    ("emitted", "rendered"),
    [
        ('{"x":1,"y":2}', '{"x": 1, "y": 2}'),
        ('{"x": 1, "y": 2}', '{"y": 2, "x": 1}'),
        ('{"x": 1.0}', '{"x": 1}'),
        ('{"x": 1e2}', '{"x": 100}'),
        (r'{"text": "caf\u00e9"}', '{"text": "café"}'),
        (r'{"text": "a\/b"}', '{"text": "a/b"}'),
        ('{"keys": ["left","down"]}', '{"keys": ["left", "down"]}'),
    ],
)
def test_json_written_another_way_with_equal_values_is_benign(emitted, rendered):
    assert kinds(call(emitted), call(rendered)) == {"json"}


@pytest.mark.parametrize(
    ("emitted", "rendered"),
    [
        ('{"text": "a b"}', '{"text": "ab"}'),
        ('{"text": "a  b"}', '{"text": "a b"}'),
        (r'{"text": "a\nb"}', '{"text": "a b"}'),
        ('{"x": 1}', '{"x": 10}'),
        ('{"x": 1}', '{"x": "1"}'),
        ('{"x": 1}', '{"x": true}'),
        ('{"x": null}', '{"x": false}'),
        ('{"x": 0}', '{"x": null}'),
        ('{"x": 1, "y": 2}', '{"x": 2, "y": 1}'),
        ('{"x": 1, "y": 2}', '{"x": 1}'),
        ('{"keys": ["left", "down"]}', '{"keys": ["down", "left"]}'),
        ('{"x": 1, "x": 2}', '{"x": 2}'),
        ('{"x": NaN}', '{"x":  NaN}'),
        ('{"x": 1e999}', '{"x": 1e998}'),
    ],
)
def test_a_changed_value_is_not_benign(emitted, rendered):
    """The published reference strips all white space and accepts "a b" for "ab"."""
    assert kinds(call(emitted), call(rendered)) is None


@pytest.mark.parametrize(
    ("emitted", "rendered"),
    [
        ("a b", "ab"),
        ("ab", "a b"),
        ('say "a  b"', 'say "a b"'),
        ("Click it.", "Click this."),
        (call("{}"), ""),
        (call("{}") + "thanks", call("{}")),
        ("x" + call("{}"), call("{}") + "x"),
        (OPEN + '{"name": broken' + CLOSE, OPEN + '{"name": "broken"' + CLOSE),
        (OPEN + '{"text": "a  b' + CLOSE, OPEN + '{"text": "a b' + CLOSE),
        ('{"name": "a", "arguments": {}}', call("{}")),
    ],
)
def test_a_changed_text_is_not_benign(emitted, rendered):
    assert kinds(emitted, rendered) is None


def test_halves_of_a_character_are_compared_as_bytes():
    """Both decode to U+FFFD, and so does the real U+FFFD."""
    half, other, shown = "é".encode()[:1], "ü".encode()[1:], "\ufffd".encode()
    assert changes(half, other) is None
    assert changes(half, shown) is None
    assert changes(half + b"\n\n", half + b"\n") is not None


def test_only_the_changed_lexemes_of_a_call_are_changed():
    pieces = changes(call('{"x":1, "y": 22}').encode(), call('{"x": 1, "y": 22}').encode())
    assert [(p.emitted, p.rendered) for p in pieces if p.change] == [(0, 1)]


def test_deeply_nested_json_is_compared_as_text():
    deep = "[" * 100_000
    assert kinds(f"<tool_call>{deep}\n\n</tool_call>", f"<tool_call>{deep}\n</tool_call>")
    assert kinds(f"<tool_call>{deep}</tool_call>", f"<tool_call>{deep}]</tool_call>") is None
