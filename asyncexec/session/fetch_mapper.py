"""Nests of fetches: what they ask for, and results put together in the same nest (``session.py``, _FetchMapper)."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, NotFoundError
from asyncexec.frontend.create_op import TensorSource
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.ops.session_state import SESSION_HANDLES, kept

Build: TypeAlias = Callable[[Sequence[Any]], Any]
_LEAVES: Final = (Tensor, Node, str, TensorSource)


class FetchMapper:
    """What a nest of fetches asks for.

    Attributes:
        tensors: the tensors in it, none twice.
        targets: the operations in it.
        build: makes the result from the values of ``tensors``.
    """

    def __init__(self, graph: Graph, fetches: Any) -> None:
        self._graph = graph
        self._positions: dict[Tensor, int] = {}
        self.targets: list[Node] = []
        self.build = self._map(fetches, "fetches")

    @property
    def tensors(self) -> list[Tensor]:
        return list(self._positions)

    def position_of(self, tensor: Tensor) -> int:
        """Where the value of *tensor* stands among those of ``tensors``, which it is one of from now on."""
        return self._positions.setdefault(tensor, len(self._positions))

    def _map(self, fetches: Any, where: str) -> Build:
        if isinstance(fetches, _LEAVES):
            return self._map_leaf(fetches)
        if isinstance(fetches, Mapping):
            return _mapping(fetches, [self._map(value, f"{where}[{key!r}]") for key, value in fetches.items()])
        if isinstance(fetches, (list, tuple)):
            return _sequence(fetches, [self._map(value, f"{where}[{i}]") for i, value in enumerate(fetches)])
        if dataclasses.is_dataclass(fetches) and not isinstance(fetches, type):
            return self._map_dataclass(fetches, where)
        raise InvalidTypeError(
            f"{where} is {type(fetches).__name__} {fetches!r}, which cannot be fetched",
            hint="fetch a tensor, an operation, a name, or a list, tuple, dict or dataclass of them",
        )

    def _map_dataclass(self, fetches: Any, where: str) -> Build:
        names = _field_names(fetches)
        parts = [self._map(getattr(fetches, name), f"{where}.{name}") for name in names]
        kind: Any = type(fetches)
        return lambda values: kind(**{name: part(values) for name, part in zip(names, parts, strict=True)})

    def _map_leaf(self, fetch: Tensor | Node | str | TensorSource) -> Build:
        found = element(self._graph, fetch, "fetch")
        if isinstance(found, Node):
            self.targets.append(found)
            return lambda _: None
        position = self.position_of(found)
        if found.op.op in SESSION_HANDLES:
            return lambda values: kept(values[position])
        return lambda values: values[position]


def _sequence(fetches: Sequence[Any], parts: list[Build]) -> Build:
    kind: Any = type(fetches)
    if kind is list:
        return lambda values: [part(values) for part in parts]
    if hasattr(fetches, "_fields"):
        return lambda values: kind(*(part(values) for part in parts))
    return lambda values: kind(part(values) for part in parts)


def _mapping(fetches: Mapping[Any, Any], parts: list[Build]) -> Build:
    keys = list(fetches)
    kind: Any = type(fetches) if isinstance(fetches, dict) else dict
    if isinstance(fetches, defaultdict):
        kind = partial(kind, fetches.default_factory)
    return lambda values: kind((key, part(values)) for key, part in zip(keys, parts, strict=True))


def element(graph: Graph, given: Any, role: str) -> Tensor | Node:
    """The tensor or operation of *graph* that *given*, one itself or a name, means.

    Raises:
        InvalidArgumentError: it is of another graph, or a name of nothing in this one.
        InvalidTypeError: it is neither.
    """
    if isinstance(given, str):
        try:
            found: Tensor | Node = graph[given.removeprefix("^")]
        except (NotFoundError, InvalidArgumentError) as error:
            raise InvalidArgumentError(f"{role} {given!r}: {error.message}", hint=error.hint) from None
        return found
    if isinstance(given, TensorSource):
        given = given.fetched_tensor()
    if isinstance(given, (Tensor, Node)):
        if given.graph is not graph:
            raise InvalidArgumentError(f"{role} {given.name!r} is not of this session's graph")
        return given
    raise InvalidTypeError(f"{role} {given!r} is neither a tensor, an operation nor a name")


def structure_key(fetches: Any) -> Any:
    """A hashable key that is equal for equal nests of the same tensors, operations and names."""
    kind = type(fetches)
    if kind is Tensor or kind is str or kind is Node or isinstance(fetches, TensorSource):
        return fetches
    if kind is list or kind is tuple:
        return (kind, *[structure_key(item) for item in fetches])
    if isinstance(fetches, Mapping):
        # By id, since it may have no hash; what is cached under the key holds it, so that the id stays its own.
        factory = id(fetches.default_factory) if isinstance(fetches, defaultdict) else None
        return (kind, factory, *[(_exact_key(key), structure_key(value)) for key, value in fetches.items()])
    if isinstance(fetches, (list, tuple)):
        return (kind, *map(structure_key, fetches))
    if isinstance(fetches, str):
        return fetches
    if dataclasses.is_dataclass(fetches) and not isinstance(fetches, type):
        return (kind, *[structure_key(getattr(fetches, name)) for name in _field_names(fetches)])
    return (kind, id(fetches))  # it cannot be fetched


def _exact_key(key: Any) -> Any:
    """What is equal for keys of a mapping that are equal and of the same types: 1, 1.0 and True are three."""
    kind = type(key)
    if kind is str:
        return key
    if isinstance(key, tuple):
        return (kind, *map(_exact_key, key))
    if isinstance(key, frozenset):
        return (kind, frozenset(map(_exact_key, key)))
    return (kind, repr(key) if isinstance(key, (float, complex)) else key)  # 0.0 == -0.0


def _field_names(instance: Any) -> list[str]:
    """The fields that the dataclass of *instance* is made from."""
    return [field.name for field in dataclasses.fields(instance) if field.init]
