"""Fields of a model's configuration that would change what it does, and that are not built.

Others that have no effect, such as ``optimization``, say how a model runs on other hardware, or what a backend is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asyncexec.framework.errors import InvalidArgumentError


def check_fields(config: object, name: str) -> None:
    """Raise InvalidArgumentError where *config*, of the model called *name*, has such a field."""
    for field in _unbuilt(config):
        raise InvalidArgumentError(f"model '{name}' has '{field}' in its config, which is not supported")


def _unbuilt(config: Any) -> Iterator[str]:
    for role in ("input", "output"):
        for i, each in enumerate(getattr(config, role)):
            for field in ("is_shape_tensor", "allow_ragged_batch", "is_non_linear_format_io"):
                if getattr(each, field, False):
                    yield f"{role}[{i}].{field}"
    for field in ("batch_input", "batch_output"):
        if getattr(config, field):
            yield field
    for i, group in enumerate(config.instance_group):
        if group.passive:
            yield f"instance_group[{i}].passive"
    if config.model_operations.op_library_filename:
        yield "model_operations.op_library_filename"
    if config.model_repository_agents.agents:
        yield "model_repository_agents"
