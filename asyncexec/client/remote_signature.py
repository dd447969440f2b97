"""What a model of another process takes and gives, as its metadata tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.cooperative import Stage, run_in_slices
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.frontend.convert import as_tensor_value
from asyncexec.graph.node import Tensor
from asyncexec.service.datatypes import datatype_of, dtype_of
from asyncexec.session.function_call_frame import convert_in_slices, feed_converter
from asyncexec.session.large_feeds import LargeFeedError

_FIRST: Final = ":0"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of a model.

    Attributes:
        name: what it is fed or fetched by.
        dtype: its dtype.
        shape: its shape, as far as the server tells.
    """

    name: str
    dtype: DType
    shape: TensorShape


class Fed(NamedTuple):
    """A value as it is sent."""

    name: str
    datatype: str
    array: Array


class RemoteSignature:
    """The inputs and outputs of a model.

    A server that tells of none leaves it to itself to check names; values then have the dtypes that they have here.

    Attributes:
        inputs, outputs: by name.
    """

    def __init__(self, model: str, inputs: Iterable[TensorInfo], outputs: Iterable[TensorInfo]) -> None:
        self._model = model
        self.inputs: Mapping[str, TensorInfo] = {info.name: info for info in inputs}
        self.outputs: Mapping[str, TensorInfo] = {info.name: info for info in outputs}
        self._is_known = bool(self.inputs or self.outputs)
        self._inputs = {name: _Input(model, info) for name, info in self.inputs.items()}

    @classmethod
    def of(cls, model: str, metadata: Any) -> RemoteSignature:
        """What *metadata*, a ModelMetadataResponse, tells."""
        return cls(model, map(_info, metadata.inputs), map(_info, metadata.outputs))

    def output_name(self, fetch: object) -> str:
        """The name of the output that *fetch* means.

        Raises:
            InvalidTypeError: it is no name; InvalidArgumentError: there is no such output.
        """
        if not isinstance(fetch, str):
            raise InvalidTypeError(
                f"fetch {fetch!r} is no name: outputs of a remote model are fetched by their names",
                hint=self._told("outputs", self.outputs),
            )
        return self._found(fetch, self.outputs, "output")

    async def convert(self, feeds: object) -> list[Fed]:
        """*feeds* as they are sent; what is large is converted in slices.

        Raises:
            InvalidTypeError: feeds are no mapping, or a value is of another dtype; InvalidArgumentError: there is no
                such input, or a value is of another shape.
        """
        if not isinstance(feeds, Mapping):
            raise InvalidTypeError(f"feeds is {type(feeds).__name__} {feeds!r}, not a mapping of names to values")
        fed: dict[str, Fed] = {}
        for key, value in feeds.items():
            if not isinstance(key, str):
                raise InvalidTypeError(
                    f"feed key {key!r} is no name: a remote model is fed by the names of its inputs",
                    hint=self._told("inputs", self.inputs),
                )
            name = self._found(key, self.inputs, "input")
            if name in fed:
                raise InvalidArgumentError(f"input {name!r} is fed more than once")
            known = self._inputs.get(name)
            fed[name] = _as_given(name, value) if known is None else await known.convert(value)
        return list(fed.values())

    def _found(self, name: str, known: Mapping[str, TensorInfo], role: str) -> str:
        if name in known or not self._is_known:
            return name
        if name.endswith(_FIRST) and name.removesuffix(_FIRST) in known:  # as in a session of the graph
            return name.removesuffix(_FIRST)
        raise InvalidArgumentError(f"model {self._model!r} has no {role} {name!r}", hint=self._told(f"{role}s", known))

    def _told(self, role: str, known: Mapping[str, TensorInfo]) -> str | None:
        return f"its {role} are {', '.join(map(repr, known)) or 'none'}" if self._is_known else None


def _info(metadata: Any) -> TensorInfo:
    shape = TensorShape([None if size < 0 else size for size in metadata.shape])
    return TensorInfo(metadata.name, dtype_of(metadata.datatype, metadata.name), shape)


class _Input:
    """An input of a model, which stands for a placeholder where feeds are converted."""

    index: Final = 0

    def __init__(self, model: str, info: TensorInfo) -> None:
        self.name = info.name
        self.dtype = info.dtype
        # The protocol cannot say that a rank is not known: that looks like one size that is not.
        self.shape = TensorShape(None) if info.shape.dims == (None,) else info.shape
        self.op: Any = _Place(info.name, f"input of model {model!r}", None, (self.shape,))
        self._datatype = datatype_of(info.dtype)
        self._tensor = cast("Tensor", self)
        self._convert = feed_converter(self._tensor, is_guarded=True)
        self._convert_large = feed_converter(self._tensor)

    async def convert(self, value: object) -> Fed:
        """*value* as it is sent; errors as of a session's feeds."""
        try:
            converted = self._convert(value)
        except LargeFeedError:
            converted = await run_in_slices(self._in_slices(value))
        return Fed(self.name, self._datatype, _as_array(converted))

    def _in_slices(self, value: object) -> Stage[object]:
        return (yield from convert_in_slices(self._tensor, self._convert_large, value))


class _Place(NamedTuple):
    """What an error names as the node."""

    name: str
    op: str
    user_line: str | None
    output_shapes: tuple[TensorShape, ...]


def _as_given(name: str, value: object) -> Fed:
    """*value*, of whatever dtype it is."""
    converted, dtype = as_tensor_value(value)
    return Fed(name, datatype_of(dtype), _as_array(converted))


def _as_array(value: object) -> Array:
    if isinstance(value, (bytes, str)):
        array = np.empty((), object)
        array[()] = value
        return array
    return np.asarray(value)
