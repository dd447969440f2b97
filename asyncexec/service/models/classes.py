"""Classes: the largest elements of an output, as "value:index:label" (Triton's classification extension)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.importers.files import read_file
from asyncexec.service.requests import InferTensor

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

Labels = Mapping[str, Sequence[str]]  # of each output that has any: the label of an element by its index
_MOST_CLASSES: Final = 2**20  # of an answer: each is an object


def classified(name: str, tensor: InferTensor, count: int, labels: Sequence[str], *, has_batch: bool) -> InferTensor:
    """The *count* largest elements of *tensor*, output *name*, or of each of its rows, the largest first.

    Raises:
        InvalidArgumentError: its elements are no numbers, or those of numpy's; there are too many classes.
    """
    array = tensor.array
    if array.dtype.kind not in "iuf" or tensor.datatype == "FP16":
        raise InvalidArgumentError(
            f"class result not available for output '{name}' due to unsupported type '{tensor.datatype}'"
        )
    batch = array.shape[:1] if has_batch else ()
    rows = array.reshape(*(batch or (1,)), -1) if array.size else array.reshape(*(batch or (1,)), 0)
    count = min(count, rows.shape[1])
    if count * len(rows) > _MOST_CLASSES:
        raise InvalidArgumentError(f"output '{name}' is asked for as more than {_MOST_CLASSES} classes")
    found = np.empty((len(rows), count), object)
    for i, row in enumerate(rows):
        for j, index in enumerate(_largest(row, count)):
            found[i, j] = _told(row[index], int(index), labels)
    return InferTensor("BYTES", found.reshape(*batch, count), tensor.part)


def _largest(row: Array, count: int) -> Array:
    """The indices of the *count* largest elements of *row*: of equal ones, the first come first; NaN come last."""
    last = row.size - 1
    found = last - np.argsort(row[::-1], kind="stable")[::-1]  # with NaN before all others
    is_nan = np.isnan(row[found])
    return np.concatenate((found[~is_nan], found[is_nan]))[:count]


def _told(value: object, index: int, labels: Sequence[str]) -> bytes:
    text = f"{value:f}" if isinstance(value, np.floating) else str(value)
    label = labels[index] if index < len(labels) else ""
    return f"{text}:{index}:{label}".encode() if label else f"{text}:{index}".encode()


def labels_in(folder: Path, config: Any) -> Labels:
    """The labels that *config* names for its outputs: files in *folder* with a label in each line.

    Raises:
        InvalidArgumentError: a name is none of a file there, or the file is no text.
    """
    labels: dict[str, list[str]] = {}
    for output in config.output:
        name = output.label_filename
        if not name:
            continue
        path = folder / name
        if Path(name).name != name or name == ".." or not path.is_file():
            raise InvalidArgumentError(f"'label_filename' of output '{output.name}' is no file of the model: {name!r}")
        try:
            labels[output.name] = read_file(path, "a file of labels").decode().splitlines()
        except UnicodeDecodeError:
            raise InvalidArgumentError(f"'label_filename' of output '{output.name}' is no text: {name!r}") from None
    return labels
