"""``.pnnx.bin``: a zip whose members, stored as they are, hold the attributes of operators.

Nothing that the zip says of itself is believed before it is checked: an attribute has the bytes that its shape in the
param file asks for, and all of them together no more than the file has.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import DataLossError, NotFoundError
from asyncexec.framework.types import DType
from asyncexec.importers.files import file_errors

_IS_ENCRYPTED: Final = 0x1


class AttributeFile:
    """The attributes in one ``.pnnx.bin`` file, which is opened when it is entered.

    Raises:
        NotFoundError: there is no such file.
        DataLossError: it is truncated, or no zip.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._zip: zipfile.ZipFile
        self._left = 0

    def __enter__(self) -> Self:
        with file_errors(self._path, "the attributes of a PNNX model"):
            self._left = self._path.stat().st_size
            with self._bad_zip_errors():
                self._zip = zipfile.ZipFile(self._path)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._zip.close()

    def read(self, name: str, shape: tuple[int, ...], dtype: DType) -> Array:
        """The attribute *name*, a read-only array.

        Raises:
            NotFoundError: the file has none of that name.
            DataLossError: it has another size, is compressed, or cannot be read.
        """
        try:
            info = self._zip.getinfo(name)
        except KeyError:
            raise NotFoundError(f"{str(self._path)!r} has no attribute {name!r}") from None
        size = prod(shape) * dtype.as_numpy_dtype.itemsize
        self._check(info, size, f"{list(shape)} of {dtype.name}")
        with self._bad_zip_errors():
            data = self._zip.read(info)
        if len(data) != size:
            raise DataLossError(f"attribute {name!r} in {str(self._path)!r} ends after {len(data)} of {size} bytes")
        return np.frombuffer(data, dtype.as_numpy_dtype).reshape(shape)

    def _check(self, info: zipfile.ZipInfo, size: int, what: str) -> None:
        where = f"attribute {info.filename!r} in {str(self._path)!r}"
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _IS_ENCRYPTED:
            raise DataLossError(f"{where} is compressed or encrypted; PNNX stores attributes as they are")
        if info.file_size != size or info.compress_size != size:
            raise DataLossError(f"{where} has {info.file_size} bytes, but {what} has {size}")
        self._left -= size
        if self._left < 0:
            raise DataLossError(f"{where} and those before have more bytes than the file")

    @contextmanager
    def _bad_zip_errors(self) -> Iterator[None]:
        try:
            yield
        except (zipfile.BadZipFile, NotImplementedError, struct.error, EOFError, ValueError, OverflowError) as error:
            raise DataLossError(f"{str(self._path)!r} is truncated, or no zip of attributes: {error}") from error
