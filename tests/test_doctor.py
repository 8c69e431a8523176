"""The doctor names what it saw and how to fix it, and never prints a key."""

from pathlib import Path

import pytest

from cua_lab import doctor
from cua_lab.desktop.trial import boot_once
from cua_lab.errors import LabError
from tests.conftest import needs_chromium


def test_every_finding_that_is_not_ok_says_what_to_do() -> None:
    assert all(check.fix for check in doctor.examine() if check.status != "ok")


def test_a_check_without_a_fix_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="says no fix"):
        doctor.Check("memory", "warn", "0.1 GiB")


def test_a_stray_hud_key_is_found_in_each_place_and_its_value_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".hud").mkdir()
    (tmp_path / ".hud" / ".env").write_text("HUD_API_KEY=planted-secret\n")
    (tmp_path / ".env").write_text("export HUD_API_KEY = planted-secret\n")
    monkeypatch.setenv("HUD_API_KEY", "planted-secret")
    check = doctor.hud_keys(home=tmp_path, folder=tmp_path)
    assert check.status == "warn"
    assert check.saw.count(".env") == 2
    assert "variable HUD_API_KEY" in check.saw
    assert "planted-secret" not in check.saw + check.fix


def test_an_empty_key_is_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUD_API_KEY", raising=False)
    (tmp_path / ".env").write_text("HUD_API_KEY=\nOTHER=1\n")
    assert doctor.hud_keys(home=tmp_path, folder=tmp_path).status == "ok"


def test_a_missing_or_old_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": None, "httpx": "0.1"}
    real = doctor.installed_version
    monkeypatch.setattr(doctor, "installed_version", lambda name: versions.get(name, real(name)))
    check = next(iter(doctor.packages()))
    assert check.status == "fail"
    assert "torch is missing" in check.saw
    assert "httpx 0.1 does not satisfy >=0.27" in check.saw


def test_the_telemetry_trap_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """HUD writes base64 screenshots to disk with this setting, whatever its name says."""
    monkeypatch.setenv("HUD_TELEMETRY_ENABLED", "false")
    assert "spans" in doctor.hud_telemetry().saw


def test_a_browser_that_does_not_start_shows_its_last_words(monkeypatch) -> None:
    """It was installed, so the doctor said ok (evener#1141, ungoogled-chromium#2804)."""
    monkeypatch.setattr(doctor, "real_browser", lambda: iter(()))

    def boot() -> float:
        raise LabError("the desktop did not start: No usable sandbox!\nWhat helps: a namespace")

    check = doctor.browser_boots(boot)
    assert (check.status, check.fix) == ("optional", "a namespace")
    assert "No usable sandbox!" in check.saw
    assert doctor.browser_boots(lambda: 1.25).saw.endswith("(1.2 s)")


def test_the_doctor_boots_a_browser_once() -> None:
    needs_chromium()
    assert doctor.browser_boots(boot_once).status == "ok"


@pytest.mark.parametrize(
    ("absent", "words"),
    [
        ((), "ready: 00, 01, 02, 03, 04, 05, 06, 07, 08, 09, 10, 11, 12"),
        (
            ("dashscope",),
            "ready: 00, 01, 02, 03, 05, 06, 07, 08, 09, 10, 11, 12; 04 needs dashscope",
        ),
        (("Xvnc", doctor.BROWSER), "07 needs Xvnc, real browser; 08 needs Xvnc, real browser"),
    ],
)
def test_the_lessons_that_can_run_here_are_named(absent, words) -> None:
    checks = [doctor.Check(name, "optional", "absent", "install it") for name in absent]
    assert words in doctor.lessons([doctor.Check("python", "ok", "3.11"), *checks]).saw


def test_no_lesson_is_ready_without_the_required_packages() -> None:
    failed = doctor.Check("packages", "fail", "torch is missing", "pip install -e .")
    assert "ready: none" in doctor.lessons([failed]).saw


def test_every_lesson_is_known_to_the_doctor() -> None:
    lessons = (Path(__file__).parent.parent / "notebooks").glob("[0-9][0-9]_*.ipynb")
    assert sorted(path.name[:2] for path in lessons) == list(doctor.LESSONS)
    assert {wanted for needs in doctor.NEEDS.values() for wanted in needs} <= {
        check.name for check in doctor.examine()
    }
