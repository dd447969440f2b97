"""Variables in ``safetensors`` files (extra ``safetensors``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from asyncexec.checkpoints.bundle_writer import SavedTensor
from asyncexec.checkpoints.replaced_file import replacing
from asyncexec.framework import types
from asyncexec.framework.errors import DataLossError, InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.file_errors import file_errors
from asyncexec.framework.ownership import freeze
from asyncexec.framework.types import DType

SUFFIX: Final = ".safetensors"
_EXTRA: Final = "safetensors"
# By the names that the files have for them.
_DTYPES: Final = {
    "BOOL": types.bool,
    **{f"U{bits}": types.as_dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"I{bits}": types.as_dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"F{bits}": types.as_dtype(f"float{bits}") for bits in (16, 32, 64)},
    "BF16": types.bfloat16,
    "C64": types.complex64,
}


class SafetensorsFile:
    """The tensors of a file by name, each read when it is asked for.

    Raises:
        NotFoundError: there is no such file.
        DataLossError: it is cut short, or no such file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
            kinds = {name: (each.get_dtype(), tuple(each.get_shape())) for name, each in slices.items()}
        unknown = sorted(name for name, (kind, _) in kinds.items() if kind not in _DTYPES)
        if unknown:
            told = ", ".join(f"{name!r} ({kinds[name][0]})" for name in unknown)
            raise InvalidArgumentError(f"{path} has tensors of dtypes that are not known: {told}")
        self.specs: Mapping[str, tuple[DType, tuple[int, ...]]] = {
            name: (_DTYPES[kind], shape) for name, (kind, shape) in kinds.items()
        }

    def read(self, name: str) -> Any:
        """The tensor *name*: a read-only array, or a numpy scalar."""
        with self._open() as file:
            return freeze(file.get_tensor(name))

    def _open(self) -> Any:
        library = require("safetensors", extra=_EXTRA)
        with file_errors():
            try:
                return library.safe_open(str(self._path), framework="np")
            except library.SafetensorError as error:
                raise DataLossError(f"{self._path} is no safetensors file, or is cut short: {error}") from error


def write_safetensors(path: Path, tensors: Iterable[SavedTensor]) -> None:
    """Write *tensors* to the file *path*, in place of the one that is there.

    Raises:
        InvalidArgumentError: the format has no form for a dtype; all such tensors are named.
        NotFoundError, PermissionDeniedError, ResourceExhaustedError: the folder is missing, ..., the disk is full.
    """
    numpy = require("safetensors.numpy", extra=_EXTRA)
    saved = list(tensors)
    wrong = [f"{each.name!r} ({each.dtype.name})" for each in saved if each.dtype not in _DTYPES.values()]
    if wrong:
        raise InvalidArgumentError(
            f"safetensors has no form for {', '.join(wrong)}",
            hint="save in TensorFlow's format: a path without a suffix",
        )
    arrays = {each.name: np.ascontiguousarray(each.value).reshape(np.shape(each.value)) for each in saved}
    with file_errors():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            numpy.save_file(arrays, file.name)
