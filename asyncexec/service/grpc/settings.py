"""Triton's trace and logging extensions over gRPC: settings that clients read and change."""

from __future__ import annotations

from typing import Any

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.observing.telemetry import Telemetry
from asyncexec.service.observing.traces import check_model
from asyncexec.service.protocol_messages import message


class SettingsCalls:
    """The calls ``TraceSetting`` and ``LogSettings``."""

    def __init__(self, repository: ModelRepository, telemetry: Telemetry) -> None:
        self._repository = repository
        self._telemetry = telemetry

    async def trace_setting(self, request: Any) -> Any:
        check_model(self._repository, request.model_name)
        changes = {name: list(each.value) or None for name, each in request.settings.items()}
        self._telemetry.traces.update(changes, request.model_name)
        response = message("TraceSettingResponse")()
        for name, values in self._telemetry.traces.settings(request.model_name).items():
            response.settings[name].value.extend(values)
        return response

    async def log_settings(self, request: Any) -> Any:
        if request.settings:
            self._telemetry.log_settings.update({name: _plain(name, each) for name, each in request.settings.items()})
        response = message("LogSettingsResponse")()
        for name, value in self._telemetry.log_settings.values().items():
            setting = response.settings[name]
            if isinstance(value, bool):
                setting.bool_param = value
            elif isinstance(value, int):
                setting.uint32_param = value
            else:
                setting.string_param = value
        return response


def _plain(name: str, setting: Any) -> bool | int | str:
    choice = setting.WhichOneof("parameter_choice")
    if choice is None:
        raise InvalidArgumentError(f"log setting '{name[:20]}' has no value")
    value: bool | int | str = getattr(setting, choice)
    return value
