"""Optional libraries, imported when first used; their absence is an error that prints the install command."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from asyncexec.framework.errors import MissingExtraError


def require(module: str, *, extra: str) -> ModuleType:
    """Import *module* of the optional *extra*; MissingExtraError with the exact pip command when it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module.partition('.')[0]} is needed for this and is not installed",
            hint=f'pip install "asyncexec[{extra}]"',
        ) from error


def is_installed(module: str) -> bool:
    """Whether *module* can be imported; it is not."""
    return importlib.util.find_spec(module) is not None
