"""SECURITY.md promises nothing that no test holds: each sentence names the tests that fail without
it, and each row of its table of listeners has at least one."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
ACCESS, RFB, AUTH = "serving/test_access.py", "desktop/test_rfb.py", "desktop/test_auth.py"
ISOLATION = "envs/test_isolation.py"
CHROMIUM, FILES = "desktop/test_chromium.py", "training/test_checkpoint.py"

HELD: dict[str, tuple[str, ...]] = {
    "loopback only; another address is refused": (f"{RFB}::test_only_loopback_is_served",),
    "whoever answers VNC's challenge": (
        f"{AUTH}::test_the_right_password_passes_and_the_wrong_one_gets_a_reason",
        f"{AUTH}::test_nobody_gets_around_the_password",
        f"{AUTH}::test_every_challenge_is_fresh",
    ),
    "VNC authentication uses 8 bytes of the password and DES": (
        f"{AUTH}::test_des_is_the_one_of_vnc",
        f"{AUTH}::test_only_the_first_line_counts_and_long_passwords_are_cut_as_vnc_does",
    ),
    "| Xvnc under Chromium | 127.0.0.1, a free port": (
        f"{CHROMIUM}::test_it_listens_on_loopback_alone",
        "desktop/test_xvnc.py::test_a_port_that_is_held_is_dealt_to_nobody_and_our_server_may_listen_on_it",
    ),
    "| Chromium's DevTools | a pipe, no port": (f"{CHROMIUM}::test_it_listens_on_loopback_alone",),
    "GET of files below the env's own folders; no listing": (
        "desktop/test_page_server.py::test_nothing_outside_of_the_folders_is_read",
        "desktop/test_page_server.py::test_no_folder_is_listed",
        "desktop/test_page_server.py::test_only_get_is_answered",
        "desktop/test_page_server.py::test_it_listens_on_loopback_alone",
    ),
    "POST of what was done on it; nothing is read back": (
        "envs/test_injection_pages.py::test_a_page_can_say_what_was_done_and_learn_nothing",
        "envs/test_injection_pages.py::test_what_is_no_event_is_refused_and_changes_nothing",
    ),
    "127.0.0.1; another address only with `--expose`": (
        "cli/test_serve.py::test_an_address_that_others_reach_needs_to_be_asked_for",
    ),
    "names this machine": (
        f"{ACCESS}::test_this_machines_own_names_are_answered",
        f"{ACCESS}::test_a_name_bound_to_this_machine_by_somebody_else_is_not",
        f"{ACCESS}::test_a_name_that_was_allowed_is_answered",
    ),
    "comes from no web page": (
        f"{ACCESS}::test_no_web_page_is_answered_unless_its_origin_was_allowed",
    ),
    "is JSON": (f"{ACCESS}::test_only_json_is_read",),
    "loads weights from `--model` and from folders named by `--weights` alone": (
        f"{ACCESS}::test_weights_come_from_named_folders_only_and_others_are_not_looked_into",
    ),
    "too large in bytes, pixels or text is refused before it is decoded": (
        f"{ACCESS}::test_an_image_too_large_is_refused_by_its_header",
        f"{ACCESS}::test_images_too_many_for_the_context_are_refused_before_they_are_decoded",
        f"{ACCESS}::test_text_that_cannot_fit_is_refused_before_it_is_tokenised",
        f"{ACCESS}::test_a_body_too_large_is_refused",
    ),
    "more than `--max-requests` at once get 503": (
        "serving/test_load.py::test_each_of_two_hundred_is_answered_with_its_own_or_told_to_come_back",
    ),
    "`cua-lab serve --engine vllm`, `sglang` | 127.0.0.1 only": (
        "cli/test_serve.py::test_a_real_engine_is_started_on_loopback_only",
    ),
    "it is given no variable that is named like a key": (
        "serving/test_launch.py::test_no_key_of_ours_is_in_an_engines_environment",
    ),
    "sees nothing of your environment but `PATH`": (
        "desktop/test_surroundings.py::test_a_child_sees_none_of_our_variables_but_where_programs_are",
    ),
    "Names other than loopback do not resolve": (
        f"{CHROMIUM}::test_nothing_outside_can_be_reached",
        f"{CHROMIUM}::test_a_page_reaches_no_other_server_of_this_machine",
    ),
    "a proxy lets a page reach its own server and no other port": (
        f"{ISOLATION}::test_a_page_reaches_neither_another_desktop_nor_another_visits_events",
    ),
    "`file:`, `chrome:`, `view-source:` and `devtools:` addresses are blocked, also in an": (
        f"{ISOLATION}::test_a_page_reads_no_file_of_the_lab",
        f"{ISOLATION}::test_an_address_bar_shows_no_file_of_the_lab",
    ),
    "without the variables whose names say key, token, secret, password, credential or auth": (
        f"{ISOLATION}::test_an_env_in_a_child_process_sees_no_credential",
    ),
    "profiles are removed afterwards": (
        f"{CHROMIUM}::test_a_killed_parent_leaves_no_process_no_file_and_no_port",
        "desktop/test_guard.py::test_a_closed_guard_leaves_no_process_and_no_file",
    ),
    "its own sandbox, except as root": (
        "desktop/test_surroundings.py::test_the_sandbox_is_off_for_root_alone",
    ),
    "a call that is wrong in any part sends nothing": (
        "computer/test_real_screen.py::test_nothing_stays_held_after_an_error",
        "test_fuzz.py::test_arguments_of_a_call_are_a_call_or_an_error_for_the_policy",
    ),
    "Nothing is pickled or unpickled": ("test_security_page.py::test_nothing_is_pickled",),
    "a damaged one is not loaded": (
        f"{FILES}::test_a_torn_checkpoint_is_passed_over_for_the_one_before",
        "test_fuzz.py::test_damaged_weights_and_manifests_are_refused_and_change_nothing",
    ),
    "read without custom tags": (
        "recipes/test_source.py::test_hostile_yaml_is_one_line_that_names_the_file",
    ),
    "they fetch nothing and run only the script that they were built with": (
        "browser/test_viewer_page.py::test_it_opens_from_a_file_without_a_complaint_and_nothing_hostile_runs",
        "browser/test_fuzzed_tokens.py::test_no_token_is_more_than_text_in_the_viewer_and_in_its_static_copy",
    ),
    "is not used unless the agent is told": (
        "play/test_agent.py::test_a_stray_hud_key_is_not_used_unless_asked_for",
    ),
    "neither sends nor writes anything": (
        "test_hud_quirks.py::test_without_an_account_nothing_is_emitted_and_with_one_hud_emits",
    ),
    "given as the path of a file": (
        "training/test_trackers.py::test_wandb_reads_its_key_from_the_file_and_from_nowhere_else",
        "run/test_task_evaluation.py::test_a_key_file_that_cannot_be_used_is_named",
        "play/test_containers.py::test_a_key_comes_from_its_file_and_a_missing_one_says_where_it_belongs",
    ),
}
BY_OTHERS = ("embedded engine in a run", "HUD's env server", "JupyterLab")
"""Rows that say what others' software does, or that there is no listener."""


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize("sentence", HELD)
def test_each_sentence_stands_on_the_page_and_has_its_tests(sentence: str) -> None:
    assert sentence in " ".join(PAGE.split()) or sentence in PAGE, (
        "SECURITY.md says it otherwise now"
    )
    for test in HELD[sentence]:
        file, name = test.split("::")
        assert name in names_in(file), test


def test_each_listener_has_a_test_or_is_somebody_elses() -> None:
    table = PAGE[PAGE.index("| listener |") : PAGE.index("## ", PAGE.index("| listener |"))]
    rows = [line for line in table.splitlines()[2:] if line.startswith("|")]
    assert len(rows) >= 9
    for row in rows:
        held = any(sentence in row for sentence in HELD)
        assert held or any(f"| {name}" in row for name in BY_OTHERS), row


def test_nothing_is_pickled() -> None:
    for path in (ROOT / "cua_lab").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = (
                [a.name for a in node.names]
                if isinstance(node, (ast.Import, ast.ImportFrom))
                else []
            )
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            found = {name.split(".")[0] for name in names} & {
                "pickle",
                "dill",
                "joblib",
                "shelve",
                "marshal",
            }
            assert not found, f"{path}: {found}"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called = f"{node.value.id}.{node.attr}"
                assert called not in {"torch.load", "torch.save", "np.load"}, f"{path}: {called}"
