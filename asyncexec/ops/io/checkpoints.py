"""Ops that save and restore checkpoints (``tensorflow/core/kernels/save_restore_v2_ops.cc``, ``save_op.cc``).

The first versions, Save and Restore, are declared only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from asyncexec.checkpoints.bundle_reader import BundleReader
from asyncexec.checkpoints.bundle_writer import SavedTensor, merge_bundles, write_bundle
from asyncexec.checkpoints.tensor_slice import TensorSlice, parse_shape_and_slice
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.file_access import named_path
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.ops.string.string_elements import flat_strings, scalar_string

_EXPENSIVE: Final = KernelKind.EXPENSIVE
_Part = tuple[tuple[int, ...], TensorSlice] | None


def _scalars_in(c: InferenceContext) -> Sequence[TensorShape]:
    for index in range(c.num_inputs):
        c.scalar(index)
    return scalars(c)


register_op(
    "Save",
    "filename: string, tensor_names: string, data: T ->",
    "T: list(type) >= 1",
    is_stateful=True,
    touches_outside=True,
    shape=no_outputs,
)
register_op(
    "SaveV2",
    "prefix: string, tensor_names: string, shape_and_slices: string, tensors: dtypes ->",
    "dtypes: list(type) >= 1",
    is_stateful=True,
    touches_outside=True,
    shape=no_outputs,
)
register_op(
    "Restore",
    "file_pattern: string, tensor_name: string -> tensor: dt",
    "dt: type; preferred_shard: int = -1",
    is_stateful=True,
    touches_outside=True,
)
register_op(
    "RestoreV2",
    "prefix: string, tensor_names: string, shape_and_slices: string -> tensors: dtypes",
    "dtypes: list(type) >= 1",
    is_stateful=True,
    touches_outside=True,
)
register_op(
    "MergeV2Checkpoints",
    "checkpoint_prefixes: string, destination_prefix: string ->",
    "delete_old_dirs: bool = True; allow_missing_files: bool = False",
    is_stateful=True,
    touches_outside=True,
    shape=no_outputs,
)
register_op(
    "ShardedFilename", "basename: string, shard: int32, num_shards: int32 -> filename: string", shape=_scalars_in
)
register_op("ShardedFilespec", "basename: string, num_shards: int32 -> filename: string", shape=_scalars_in)


@register_kernel("RestoreV2", kind=_EXPENSIVE, is_expensive=True)
def _restore(construction: OpKernelConstruction) -> Kernel:
    dtypes, files, op = construction.attr("dtypes"), construction.resource_mgr.files, construction.op

    def restore(prefix: object, tensor_names: object, shape_and_slices: object) -> tuple[object, ...]:
        names, parts = _named(tensor_names, shape_and_slices, len(dtypes))
        path = named_path(scalar_string(prefix, "prefix"))
        reader = BundleReader(path, check=partial(files.path, op))
        reader.require(names)
        _check_fit(reader, names, parts, dtypes)
        order = sorted(range(len(names)), key=lambda i: _place_of(reader, names[i]))  # as it lies on the disk
        values: dict[int, object] = {}
        for i in order:
            part = parts[i]
            values[i] = reader.read(names[i], None if part is None else part[1])
        return tuple(values[i] for i in range(len(names)))

    return restore


def _place_of(reader: BundleReader, name: str) -> tuple[int, int]:
    entry = reader.entry(name)
    return entry.shard_id, entry.offset


def _check_fit(reader: BundleReader, names: Sequence[str], parts: Sequence[_Part], dtypes: Sequence[DType]) -> None:
    """InvalidArgumentError, which lists all that do not fit, unless the tensors are what the op wants."""
    wrong = []
    for name, part, dtype in zip(names, parts, dtypes, strict=True):
        entry = reader.entry(name)
        if entry.dtype is not dtype.base_dtype:
            wrong.append(f"{name!r} is {entry.dtype.name} there, and should be {dtype.base_dtype.name}")
        if part is not None and entry.shape != part[0]:
            wrong.append(f"{name!r} has the shape {list(entry.shape)} there, and should have {list(part[0])}")
    if wrong:
        raise InvalidArgumentError(f"the checkpoint {reader.prefix} does not fit: {'; '.join(wrong[:100])}")


@register_kernel("SaveV2", kind=_EXPENSIVE, is_expensive=True)
def _save(construction: OpKernelConstruction) -> Kernel:
    dtypes, files, op = construction.attr("dtypes"), construction.resource_mgr.files, construction.op

    def save(prefix: object, tensor_names: object, shape_and_slices: object, *tensors: object) -> tuple[()]:
        names, parts = _named(tensor_names, shape_and_slices, len(dtypes))
        path = files.path(op, named_path(scalar_string(prefix, "prefix")), writes=True)
        saved = [
            SavedTensor(name, value, dtype.base_dtype, *(part or ()))
            for name, part, value, dtype in zip(names, parts, tensors, dtypes, strict=True)
        ]
        write_bundle(path, saved)
        return ()

    return save


def _named(tensor_names: Any, shape_and_slices: Any, count: int) -> tuple[list[str], list[_Part]]:
    """The names and parts that the inputs of an op tell."""
    found = []
    for value, what in ((tensor_names, "tensor_names"), (shape_and_slices, "shape_and_slices")):
        if np.shape(value) != (count,):
            raise InvalidArgumentError(f"{what} has the shape {list(np.shape(value))}; the op has {count} tensors")
        found.append([text.decode("utf-8", "surrogateescape") for text in flat_strings(value)])
    return found[0], [parse_shape_and_slice(text) for text in found[1]]


@register_kernel("MergeV2Checkpoints", kind=_EXPENSIVE, is_expensive=True)
def _merge(construction: OpKernelConstruction) -> Kernel:
    deletes, allows_missing = construction.attr("delete_old_dirs"), construction.attr("allow_missing_files")
    allowed = partial(construction.resource_mgr.files.path, construction.op, writes=True)

    def merge(checkpoint_prefixes: Any, destination_prefix: object) -> tuple[()]:
        if np.ndim(checkpoint_prefixes) != 1:
            raise InvalidArgumentError(
                f"checkpoint_prefixes must be a vector, but is of shape {list(np.shape(checkpoint_prefixes))}"
            )
        sources = [allowed(named_path(name)) for name in flat_strings(checkpoint_prefixes)]
        target = allowed(named_path(scalar_string(destination_prefix, "destination_prefix")))
        merge_bundles(sources, target, allow_missing_files=allows_missing, check=allowed)
        for folder in {source.parent for source in sources} - {target.parent} if deletes else set[Path]():
            with suppress(OSError):  # it holds something else
                folder.rmdir()
        return ()

    return merge


def _sharded_filename(basename: Any, shard: Any, num_shards: Any) -> bytes:
    return b"%s-%05d-of-%05d" % (scalar_string(basename, "basename"), shard, num_shards)


def _sharded_filespec(basename: Any, num_shards: Any) -> bytes:
    return b"%s-?????-of-%05d" % (scalar_string(basename, "basename"), num_shards)


register_function("ShardedFilename", function=_sharded_filename)
register_function("ShardedFilespec", function=_sharded_filespec)
