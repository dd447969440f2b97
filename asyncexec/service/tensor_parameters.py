"""What a request says of a single tensor, whatever the protocol: shared memory and classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.requests import OutputOptions, SharedPart

REGION: Final = "shared_memory_region"
BYTE_SIZE: Final = "shared_memory_byte_size"
OFFSET: Final = "shared_memory_offset"
CLASSIFICATION: Final = "classification"
_MOST: Final = 2**64 - 1
_MOST_CLASSES: Final = 2**31 - 1


def shared_part(tensor: str, parameters: Mapping[str, object]) -> SharedPart | None:
    """Where *tensor* is in shared memory by its *parameters*; None where it is not there.

    Raises:
        InvalidArgumentError: a parameter is of the wrong kind, or missing.
    """
    if REGION not in parameters:
        for name in (BYTE_SIZE, OFFSET):
            if name in parameters:
                raise InvalidArgumentError(f"'{tensor}' has the parameter '{name}', and no '{REGION}'")
        return None
    region = parameters[REGION]
    if not isinstance(region, str):
        raise InvalidArgumentError(f"parameter '{REGION}' of '{tensor}' is the name of a region, not {region!r}")
    if BYTE_SIZE not in parameters:
        raise InvalidArgumentError(f"'{tensor}' has the parameter '{REGION}', and no '{BYTE_SIZE}'")
    byte_size = _integer(tensor, BYTE_SIZE, parameters[BYTE_SIZE], _MOST)
    return SharedPart(region, byte_size, _integer(tensor, OFFSET, parameters.get(OFFSET, 0), _MOST))


def output_options(tensor: str, parameters: Mapping[str, object]) -> OutputOptions | None:
    """How output *tensor* is wanted by its *parameters*; None for as it is; InvalidArgumentError as shared_part()."""
    part = shared_part(tensor, parameters)
    num_classes = _integer(tensor, CLASSIFICATION, parameters.get(CLASSIFICATION, 0), _MOST_CLASSES)
    if part is None and not num_classes:
        return None
    return OutputOptions(num_classes, part)


def parameters_of_part(part: SharedPart) -> dict[str, str | int]:
    """What an answer says of an output that lies in *part*."""
    found: dict[str, str | int] = {REGION: part.region, BYTE_SIZE: part.byte_size}
    return {**found, OFFSET: part.offset} if part.offset else found


def _integer(tensor: str, name: str, value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidArgumentError(f"parameter '{name}' of '{tensor}' is an integer from 0 to {most}, not {value!r}")
    return value
