"""What the service tells of itself."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

NAME: Final = "asyncexec"
EXTENSIONS: Final = (
    "binary_tensor_data",
    "classification",
    "logging",
    "model_configuration",
    "model_repository",
    "schedule_policy",
    "sequence",
    "sequence(string_id)",
    "statistics",
    "trace",
)
HTTP_EXTENSIONS: Final = (*EXTENSIONS, "generate")


def _version() -> str:
    try:
        return version(NAME)
    except PackageNotFoundError:
        return "(not installed)"


VERSION: Final = _version()  # found in files, which are not to be read in an event loop
