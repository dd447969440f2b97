"""Large tensors of a checkpoint, in a file of their own in the format ``safetensors``: other programs can read it.

A store of files has them apart.  The name of their file has the number of the checkpoint, so the file of the checkpoint
before stays whole until the new checkpoint is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import DataLossError
from asyncexec.framework.extras import require

LARGE_BYTES: Final = 2**20
_KINDS: Final = frozenset("?bhilqBHILQefd")  # the dtypes of numpy that the format has


def large_tensors(values: Mapping[str, object]) -> dict[str, Any]:
    """Those of *values* that go to a file of their own."""
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, np.ndarray) and value.nbytes > LARGE_BYTES and value.dtype.char in _KINDS
    }


def tensors_of(content: bytes, where: str) -> dict[str, Any]:
    """The tensors in *content*, by name.

    Raises:
        DataLossError: it is cut short, or no such file.
    """
    library: Any = require("safetensors", extra="durable")
    numpy: Any = require("safetensors.numpy", extra="durable")
    try:
        found: dict[str, object] = numpy.load(content)
    except (library.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataLossError(f"{where} is no file of tensors, or is cut short: {error}") from error
    return found
