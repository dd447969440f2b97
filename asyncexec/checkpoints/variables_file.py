"""Files of variables by name: ``safetensors``, or a checkpoint of TensorFlow's format, as the path tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from asyncexec.checkpoints.bundle_messages import bundle_message
from asyncexec.checkpoints.bundle_reader import BundleReader
from asyncexec.checkpoints.bundle_writer import SavedTensor, write_bundle
from asyncexec.checkpoints.safetensors_file import SUFFIX, SafetensorsFile, write_safetensors
from asyncexec.framework.errors import DataLossError
from asyncexec.framework.extras import require
from asyncexec.framework.types import DType

_INDEX: Final = ".index"
_OBJECT_GRAPH: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE: Final = "VARIABLE_VALUE"
_COUNTER: Final = "save_counter"  # tf.train.Checkpoint's own


class VariablesFile(Protocol):
    """Variables by name.

    Attributes:
        specs: the dtype and shape of each.
    """

    specs: Mapping[str, tuple[DType, tuple[int, ...]]]

    def read(self, name: str) -> Any:
        """The value of the variable *name*."""
        ...


class CheckpointFile:
    """The variables of a checkpoint of TensorFlow's: by their names; by the full names where it was made of objects."""

    def __init__(self, prefix: Path) -> None:
        self._reader = BundleReader(prefix)
        self._keys = self._keys_by_name()
        entries = {name: self._reader.entry(key) for name, key in self._keys.items()}
        self.specs: Mapping[str, tuple[DType, tuple[int, ...]]] = {
            name: (entry.dtype, entry.shape) for name, entry in entries.items()
        }

    def read(self, name: str) -> Any:
        """The value of the variable *name*."""
        return self._reader.read(self._keys[name])

    def _keys_by_name(self) -> dict[str, str]:
        if _OBJECT_GRAPH not in self._reader:
            return {name: name for name in self._reader.names}
        try:
            graph = bundle_message("TrackableObjectGraph").FromString(self._reader.read(_OBJECT_GRAPH))
        except (TypeError, require("google.protobuf.message", extra="tf").DecodeError) as error:
            raise DataLossError(f"{self._reader.prefix} has a malformed object graph: {error}") from error
        found = {
            attribute.full_name: attribute.checkpoint_key
            for node in graph.nodes
            for attribute in node.attributes
            if attribute.name == _VALUE and attribute.checkpoint_key in self._reader
        }
        found.pop(_COUNTER, None)
        return found


def open_variables(path: Path) -> VariablesFile:
    """The variables at *path*: a ``.safetensors`` file, the prefix or the index of a checkpoint, or a SavedModel.

    Raises:
        NotFoundError: nothing is there.
        DataLossError: it is cut short, or damaged.
    """
    if path.suffix == SUFFIX:
        return SafetensorsFile(path)
    if path.is_dir():
        path = path / "variables" / "variables"
    return CheckpointFile(path.with_suffix("") if path.suffix == _INDEX else path)


def write_variables(path: Path, tensors: Iterable[SavedTensor]) -> None:
    """Write *tensors* to *path*, in the format that it tells; errors as of the format."""
    if path.suffix == SUFFIX:
        write_safetensors(path, tensors)
    else:
        write_bundle(path.with_suffix("") if path.suffix == _INDEX else path, tensors)
