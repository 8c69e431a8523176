"""Each quirk of HUD that the lab works around is still there, and the way around it works."""

import asyncio
import inspect

import pytest
from hud.capabilities import RFBClient
from hud.environment import server
from hud.eval import Task
from hud.settings import settings
from hud.types import Step
from pydantic import TypeAdapter

from cua_lab import hud_quirks
from cua_lab.env_package import env_package
from cua_lab.hud_quirks import (
    env_of,
    forget_hud_account,
    reconnect,
    silence_cancelled_streams,
    template_parameters,
)


def test_without_an_account_nothing_is_emitted_and_with_one_hud_emits(monkeypatch) -> None:
    forget_hud_account()
    assert settings.api_key is None
    assert settings.telemetry_enabled
    serialised: list[Step] = []
    monkeypatch.setattr(Step, "model_dump", lambda self, **_: serialised.append(self) or {})
    Step(source="user").emit(trace_id="t")
    assert serialised == []


def test_cancelled_streams_are_silent_and_other_errors_are_not() -> None:
    loop = asyncio.new_event_loop()
    heard: list[dict] = []
    loop.set_exception_handler(lambda _, context: heard.append(context))
    silence_cancelled_streams(loop)
    silence_cancelled_streams(loop)
    loop.call_exception_handler({"message": "gone", "exception": asyncio.CancelledError()})
    loop.call_exception_handler({"message": "bad", "exception": ValueError("x")})
    loop.close()
    assert [context["message"] for context in heard] == ["bad"]


def test_the_private_names_that_are_called_exist_in_hud() -> None:
    assert inspect.iscoroutinefunction(RFBClient._reconnect)
    assert inspect.iscoroutinefunction(reconnect)


def test_a_minted_task_knows_its_env_and_one_built_by_hand_does_not() -> None:
    lab = env_package("lab")
    assert env_of(lab.tasks[0]) is not None
    assert env_of(Task(env="lab", id="2048-score", args={}, slug="by-hand")) is None


def test_a_templates_arguments_are_told_by_name() -> None:
    lab = env_package("lab")
    assert "seed" in template_parameters(lab.env, "targets-click")
    with pytest.raises(KeyError):
        template_parameters(lab.env, "no-such-template")


def test_hud_starts_env_servers_by_the_name_that_is_replaced() -> None:
    """Credentials are kept from them there; tests/envs/test_isolation.py tests the effect."""
    from hud.eval.runtime import local

    assert "create_process_group_exec(" in inspect.getsource(local.SubprocessRuntime)


def test_a_task_can_be_made_of_a_template_that_needs_arguments() -> None:
    """HUD's own call binds them: TypeError without."""
    from hud.environment import Environment

    from cua_lab.hud_quirks import task_without_args
    from cua_lab.tasks import with_args

    env = Environment("needy")

    @env.template(id="one")
    async def one(level: int):
        yield f"{level}"
        yield 1.0

    with pytest.raises(TypeError):
        one()
    assert with_args(task_without_args(env, "one"), {"level": 3}) == {"level": 3}


def test_an_adapter_is_made_once_for_each_type_and_arguments_are_read_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    plain = TypeAdapter

    def counting(annotation: object) -> object:
        made.append(annotation)
        return plain(annotation)

    monkeypatch.setattr("cua_lab.hud_quirks.TypeAdapter", counting)
    hud_quirks._adapter.cache_clear()
    hud_quirks.keep_type_adapters()
    env = env_package("lab").env
    given = {"seed": "3", "level": 2, "width": "wide"}
    for _ in range(3):
        read = server._coerce_args(env.templates["targets-click"].sig, given)
        assert read == {"seed": 3, "level": 2, "width": "wide"}
    assert made == [int], "one for each type; without the quirk 9"
    hud_quirks._adapter.cache_clear()
