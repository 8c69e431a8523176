"""The audit log: any change, anywhere in it, is found and named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.errors import LabError
from cua_lab.safety.audit import AuditLog, head_of, verify


def written(folder, count=5):
    log = AuditLog(folder / "audit.jsonl")
    for k in range(count):
        log.append({"episode": f"e{k}", "outcome": "allowed"})
    return log.path


def test_a_log_that_nobody_touched_is_whole(tmp_path) -> None:
    chain = verify(written(tmp_path))
    assert (chain.lines, chain.broken) == (5, None)


def test_a_log_is_continued(tmp_path) -> None:
    written(tmp_path)
    written(tmp_path)
    assert verify(tmp_path / "audit.jsonl").lines == 10


@given(st.data())
def test_every_changed_byte_is_found(tmp_path_factory, data) -> None:
    path = written(tmp_path_factory.mktemp("log"), 3)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    assert verify(path).broken


@pytest.mark.parametrize("line", range(5))
def test_a_line_that_is_gone_is_named(tmp_path, line) -> None:
    path = written(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:line] + lines[line + 1 :]))
    broken = verify(path).broken
    assert broken is not None
    assert (f"line {line + 1}:" in broken) == (line < 4)  # the last one is missed by the head


def test_lines_that_change_places_are_found(tmp_path) -> None:
    path = written(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[1], lines[0], *lines[2:]]))
    assert "line 1:" in verify(path).broken


def test_a_changed_line_with_a_new_hash_does_not_fit_the_next(tmp_path) -> None:
    from cua_lab.safety import audit

    path = written(tmp_path)
    lines = path.read_text().splitlines()
    record = json.loads(lines[2]) | {"outcome": "approved"}
    del record["hash"]
    lines[2] = audit._canonical(record | {"hash": audit._digest(record)})
    path.write_text("\n".join(lines) + "\n")
    assert "line 4: it does not follow" in verify(path).broken


def test_a_head_that_is_gone_is_found(tmp_path) -> None:
    path = written(tmp_path)
    head_of(path).unlink()
    assert "no head" in verify(path).broken


def test_a_log_that_is_gone_is_found(tmp_path) -> None:
    path = written(tmp_path)
    path.unlink()
    assert verify(path).broken
    with pytest.raises(LabError, match="broken"):
        AuditLog(path)


def test_a_broken_log_is_not_continued(tmp_path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace("e1", "e9"))
    with pytest.raises(LabError, match="line 2"):
        AuditLog(path)


def test_a_process_that_ended_between_line_and_head_goes_on(tmp_path) -> None:
    path = written(tmp_path)
    head = head_of(path).read_text()
    AuditLog(path).append({"episode": "last"})
    head_of(path).write_text(head)
    assert "not sealed" in verify(path).broken
    AuditLog(path)
    assert verify(path).broken is None
