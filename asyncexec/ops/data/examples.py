"""ParseExampleDataset: batches of serialized Examples, parsed into columns in the order of their keys."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.ownership import keep
from asyncexec.framework.types import DType, string
from asyncexec.ops.data.batches import Joiner, joining
from asyncexec.ops.data.dataset import (
    Dataset,
    Element,
    ElementIterator,
    Pipeline,
    as_dataset,
    dataset_op,
    declared,
    scalar_int,
)
from asyncexec.ops.data.maps import AheadMappedIterator, is_deterministic
from asyncexec.ops.data.read_ahead import AUTOTUNED_CALLS, window_size
from asyncexec.ops.parsing.columns import DenseColumn
from asyncexec.ops.parsing.parse_example import check_count, dense_columns, parse_batch
from asyncexec.ops.ragged.ragged_variant import Ragged
from asyncexec.ops.sparse.sparse_serialization import boxed_parts


@dataclass(frozen=True, slots=True, eq=False)
class _Features:
    """What Examples are parsed for."""

    sparse: Sequence[tuple[bytes, DType]]
    dense: Sequence[DenseColumn]
    ragged: Sequence[tuple[bytes, DType, DType]]

    def parse(self, records: Any) -> list[object]:
        """The columns, by their keys."""
        if np.ndim(records) != 1:
            raise InvalidArgumentError(f"serialized must be a vector, not of shape {list(np.shape(records))}")
        outputs = parse_batch(records, np.empty(0, object), self.sparse, self.dense, self.ragged)
        num_sparse, num_dense, num_ragged = len(self.sparse), len(self.dense), len(self.ragged)
        found: dict[bytes, object] = {}
        for index, (key, dtype) in enumerate(self.sparse):
            indices, values, shape = outputs[index : 3 * num_sparse : num_sparse]
            found[key] = boxed_parts(indices, values, shape, dtype)
        start = 3 * num_sparse
        for index, column in enumerate(self.dense):
            found[column.key] = outputs[start + index]
        start += num_dense
        for index, (key, dtype, _) in enumerate(self.ragged):
            found[key] = Ragged((outputs[start + num_ragged + index],), outputs[start + index], dtype)
        return [found[key] for key in sorted(found)]


def _parse_all(_: Sequence[DType]) -> Kernel:
    def kernel(given: tuple[_Features, Element]) -> list[Any]:
        features, (records,) = given
        return features.parse(records)

    return kernel


_PARSE: Final = joining("_ParseElement", _parse_all)


def _features(c: OpKernelConstruction, defaults: Sequence[object]) -> _Features:
    sparse, types = c.attr("sparse_keys"), c.attr("sparse_types")
    check_count("sparse", sparse, types)
    names = ("ragged_keys", "ragged_value_types", "ragged_split_types")
    ragged, values, splits = (c.attrs.get(name, ()) for name in names)
    check_count("ragged", ragged, values)
    check_count("ragged", ragged, splits)
    dense = dense_columns(c.attr("dense_keys"), c.attr("Tdense"), c.attr("dense_shapes"), defaults)
    keys = [*sparse, *ragged, *(column.key for column in dense)]
    for key in keys:
        if keys.count(key) > 1:
            raise InvalidArgumentError(f"Duplicate key not allowed: {key.decode(errors='backslashreplace')}")
    return _Features(
        list(zip(sparse, types, strict=True)),
        dense,
        list(zip(ragged, values, splits, strict=True)),
    )


@dataset_op("ParseExampleDataset", "ParseExampleDatasetV2", "ExperimentalParseExampleDataset")
def parse_example_dataset(c: OpKernelConstruction) -> Kernel:
    """The columns of batches of serialized Examples."""
    dtypes, shapes = declared(c)
    joiner, is_ordered = Joiner(c, _PARSE), is_deterministic(c)

    def kernel(source: object, num_parallel_calls: object, *defaults: object) -> Dataset:
        dataset = as_dataset(source)
        if dataset.dtypes != (string,):
            raise InvalidArgumentError("a dataset of serialized Examples has elements of one component of strings")
        calls = window_size(scalar_int(num_parallel_calls, "num_parallel_calls"), AUTOTUNED_CALLS, "num_parallel_calls")
        features, run = _features(c, tuple(map(keep, defaults))), joiner.of(dtypes)

        def parse(element: Element) -> Awaitable[Element]:
            return run((features, element))

        def iterate(pipeline: Pipeline) -> ElementIterator:
            return AheadMappedIterator(pipeline, dataset.iterate(pipeline), parse, calls, is_ordered=is_ordered)

        return Dataset("ParseExample", iterate, dtypes, shapes, dataset.cardinality)

    return kernel
