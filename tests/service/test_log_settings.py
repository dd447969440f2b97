"""Triton's logging extension: what is logged, shown and changed over both protocols."""

from __future__ import annotations

import logging
from typing import Any

import grpc
import httpx
import pytest

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.app import create_app
from asyncexec.service.observing.log_lines import ACCESS, JsonLines, TextLines
from asyncexec.service.observing.log_settings import LogSettings
from asyncexec.service.protocol_messages import message
from asyncexec.service.server import serving
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import sums
from tests.service.test_access_log import Log, log  # noqa: F401
from tests.service.test_server import FREE, call

pytestmark = [pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library", "no_lingering")]

DEFAULTS = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}
FIXED = "log file location can not be updated through network protocol"


async def test_settings_over_http() -> None:
    app = create_app({"m": sums()})
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        assert (await client.get("/v2/logging")).json() == DEFAULTS
        assert (await client.post("/v2/logging")).json() == DEFAULTS
        told = dict(DEFAULTS)
        for changes in ({"log_info": False, "log_warning": None}, {"log_error": False}, {"log_verbose_level": 1}):
            told |= {name: value for name, value in changes.items() if value is not None}
            assert (await client.post("/v2/logging", json=changes)).json() == told
        answer = await client.post("/v2/logging", json={"log_format": "ISO8601", "log_error": True})
        assert answer.json() == {**told, "log_format": "ISO8601", "log_error": True}
    assert TextLines.has_iso_time is False  # as it was before


@pytest.mark.parametrize(
    ("changes", "status", "told"),
    [
        ({"log_file": "/etc/passwd"}, 501, FIXED),
        ({"log_info": False, "log_file": "x"}, 501, FIXED),
        ({"log_info": 1}, 400, "expect boolean for 'log_info'"),
        ({"log_error": "false"}, 400, "expect boolean for 'log_error'"),
        ({"log_verbose_level": -1}, 400, "expect unsigned integer"),
        ({"log_verbose_level": True}, 400, "expect unsigned integer"),
        ({"log_verbose_level": 2**31}, 400, "expect unsigned integer"),
        ({"log_info": False, "log_format": "xml"}, 400, "invalid argument for 'log_format', got: xml"),
        ({"log_format": ["default"]}, 400, "invalid argument for 'log_format'"),
        ({"unknown": True}, 400, "there is no log setting 'unknown'"),
    ],
)
async def test_what_is_no_setting(changes: Any, status: int, told: str) -> None:
    app = create_app({"m": sums()})
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answer = await client.post("/v2/logging", json=changes)
        assert answer.status_code == status
        assert told in answer.json()["error"]
        assert (await client.get("/v2/logging")).json() == DEFAULTS


async def test_settings_over_grpc() -> None:
    async def ask(**fields: Any) -> dict[str, Any]:
        request = message("LogSettingsRequest")()
        for name, (field, value) in fields.items():
            request.settings[name].SetInParent()
            if field:
                setattr(request.settings[name], field, value)
        answer = await call(ports, "LogSettings", request, "LogSettingsResponse")
        return {name: getattr(each, each.WhichOneof("parameter_choice")) for name, each in answer.settings.items()}

    async with nothing_of_grpc_left(), serving({"m": sums()}, **FREE) as ports:
        assert await ask() == DEFAULTS
        changed = await ask(log_info=("bool_param", False), log_verbose_level=("uint32_param", 2))
        assert changed == {**DEFAULTS, "log_info": False, "log_verbose_level": 2}
        refused = [
            ("log_file", ("string_param", "x"), grpc.StatusCode.UNIMPLEMENTED),
            ("log_info", ("uint32_param", 1), grpc.StatusCode.INVALID_ARGUMENT),
            ("log_verbose_level", ("bool_param", True), grpc.StatusCode.INVALID_ARGUMENT),
            ("log_info", ("", None), grpc.StatusCode.INVALID_ARGUMENT),
        ]
        for name, value, status in refused:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await ask(**{name: value})
            assert raised.value.code() is status
        assert await ask() == changed


def test_levels_are_logged_as_they_are_set(log: Log) -> None:  # noqa: F811
    logger, settings = logging.getLogger("asyncexec.service"), LogSettings()

    def logged() -> str:
        before = len(log.lines)
        for level in (logging.INFO, logging.WARNING, logging.ERROR):
            logger.log(level, "of %s", logger.name)
        return " ".join(line.split()[2][0] for line in log.lines[before:])

    logger.setLevel(logging.INFO)
    try:
        assert logged() == "I W E"
        settings.update({"log_info": False})
        assert logged() == "W E"
        settings.update({"log_info": True, "log_warning": False, "log_error": False})
        assert logged() == "I"
        with pytest.raises(InvalidArgumentError):
            settings.update({"log_error": True, "log_format": "x"})
        assert logged() == "I"
        settings.close()
        assert logged() == "I W E"
    finally:
        settings.close()
        logger.setLevel(logging.NOTSET)


def test_calls_are_logged_where_the_log_is_verbose(log: Log) -> None:  # noqa: F811
    ACCESS.setLevel(logging.WARNING)
    settings = LogSettings()
    try:
        assert settings.values()["log_verbose_level"] == 0
        for changes, is_logged in (
            ({"log_verbose_level": 1}, True),
            ({"log_info": False}, True),
            ({"log_verbose_level": 0}, False),
        ):
            settings.update(changes)
            before = len(log.lines)
            ACCESS.info("a call")
            assert (len(log.lines) > before) is is_logged
    finally:
        settings.close()
    assert ACCESS.level == logging.WARNING


def test_the_time_of_lines() -> None:
    record = logging.LogRecord("name", logging.INFO, "path", 1, "text", (), None)
    record.created, record.msecs = 86400.25, 250.0
    settings = LogSettings()
    try:
        settings.update({"log_format": "ISO8601"})
        assert TextLines().format(record) == "1970-01-02T00:00:00.250Z INFO name: text"
        settings.update({"log_format": "default"})
        assert not TextLines().format(record).startswith("1970-01-02T00:00:00")
    finally:
        settings.close()
    assert '"time": "1970-01-02T00:00:00.250Z"' in JsonLines().format(record)
