"""Optional libraries, imported when first used; their absence is an error that prints the install command."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Final

from asyncexec.framework.errors import MissingExtraError

# Packages that have another name than what is imported of them.
_PACKAGES: Final = {
    "google": "protobuf",
    "google_crc32c": "google-crc32c",
    "grpc": "grpcio",
    "PIL": "pillow",
    "re2": "google-re2",
    "farmhash": "cityhash",
}


def require(module: str, *, extra: str) -> ModuleType:
    """Import *module* of the optional *extra*; MissingExtraError with the exact pip command when it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise MissingExtraError(
            f"{_PACKAGES.get(name, name)} is needed for this and is not installed",
            hint=f'pip install "asyncexec[{extra}]"',
        ) from error


def is_installed(module: str) -> bool:
    """Whether *module* can be imported; it is not, only the package that it is in."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even what it is a part of
        return False
