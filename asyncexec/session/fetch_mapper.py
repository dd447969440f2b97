"""Nests of fetches: what they ask for, and results put together in the same nest (``session.py``, _FetchMapper)."""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, Self, TypeAlias

from asyncexec.framework.clock import Clock
from asyncexec.framework.cooperative import STRIDE, Stage, run_at_once, run_in_slices
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, NotFoundError
from asyncexec.frontend.create_op import TensorSource
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_ends import RETVALS
from asyncexec.graph.node import Node, Tensor
from asyncexec.ops.state.session_state import SESSION_HANDLES, kept

Build: TypeAlias = Callable[[Sequence[Any]], Any]
Part: TypeAlias = int | Build  # the position of a value, or what makes something of all
_EXACT: Final = ({str}, {int})  # types of keys; where all are of one, they can be told from those of other types
_LEAVES: Final = (Tensor, Node, str, TensorSource)


class NestMapper(ABC):
    """What a nest of fetches asks for.

    Attributes:
        build: makes the result from the values of what was asked for, none of which is there twice.
    """

    build: Build

    def __init__(self) -> None:
        self._positions: dict[Any, int] = {}

    @abstractmethod
    def _map_leaf(self, fetch: Any) -> Part:
        """What *fetch*, a leaf of the nest, stands for."""

    def position_of(self, wanted: Any) -> int:
        """Where the value of *wanted* stands among all, which it is one of from now on."""
        return self._positions.setdefault(wanted, len(self._positions))

    def _read(self, fetches: Any) -> Stage[None]:
        (part,) = yield from self._map_all([fetches], lambda _: "fetches")
        self.build = itemgetter(part) if isinstance(part, int) else part

    def _map_all(self, nests: Iterable[Any], where: Callable[[int], str]) -> Stage[list[Part]]:
        """Each of *nests*; errors tell *where* it is, by its number."""
        parts: list[Part] = []
        for i, fetches in enumerate(nests):
            if i and not i % STRIDE:  # a nest of a few is read at once: calls are let in as they come
                yield
            parts.append(
                self._map_leaf(fetches) if isinstance(fetches, _LEAVES) else (yield from self._map(fetches, where(i)))
            )
        return parts

    def _map(self, fetches: Any, where: str) -> Stage[Build]:
        if isinstance(fetches, Mapping):
            keys = list(fetches)
            values = map(fetches.__getitem__, keys)
            return _mapping(fetches, keys, (yield from self._map_all(values, lambda i: f"{where}[{keys[i]!r}]")))
        if isinstance(fetches, (list, tuple)):
            return _sequence(fetches, (yield from self._map_all(fetches, lambda i: f"{where}[{i}]")))
        if dataclasses.is_dataclass(fetches) and not isinstance(fetches, type):
            return (yield from self._map_dataclass(fetches, where))
        raise InvalidTypeError(
            f"{where} is {type(fetches).__name__} {fetches!r}, which cannot be fetched",
            hint="fetch a tensor, an operation, a name, or a list, tuple, dict or dataclass of them",
        )

    def _map_dataclass(self, fetches: Any, where: str) -> Stage[Build]:
        names = _field_names(fetches)
        values = (getattr(fetches, name) for name in names)
        gather = _gathered((yield from self._map_all(values, lambda i: f"{where}.{names[i]}")))
        kind: Any = type(fetches)
        return lambda values: kind(**dict(zip(names, gather(values), strict=True)))


class FetchMapper(NestMapper):
    """What a nest of fetches asks for of a graph.

    Attributes:
        tensors: the tensors in it, none twice.
        targets: the operations in it.
        build: makes the result from the values of ``tensors``.
    """

    def __init__(self, graph: Graph, fetches: object) -> None:
        super().__init__()
        self._graph = graph
        self.targets: list[Node] = []
        run_at_once(self._read(fetches))

    @classmethod
    def stage(cls, graph: Graph, fetches: object) -> Stage[Self]:
        """The same as a stage, for large nests."""
        mapper = cls(graph, ())
        yield from mapper._read(fetches)
        return mapper

    @property
    def tensors(self) -> list[Tensor]:
        return list(self._positions)

    def _read(self, fetches: object) -> Stage[None]:
        yield from super()._read(fetches)
        if isinstance(fetches, str) and self.targets and _is_run_for_its_value(self.targets[0]):
            value = self.targets[0].outputs[0].name
            warnings.warn(
                f"run({fetches!r}) runs the operation and gives None, as in TensorFlow; for its value write {value!r}",
                stacklevel=2,
            )

    def _map_leaf(self, fetch: Tensor | Node | str | TensorSource) -> Part:
        found = element(self._graph, fetch, "fetch")
        if isinstance(found, Node) and found.op in RETVALS:
            found = found.inputs[0]
        if isinstance(found, Node):
            self.targets.append(found)
            return lambda _: None
        position = self.position_of(found)
        if found.op.op in SESSION_HANDLES:
            return lambda values: kept(values[position])
        return position


def _is_run_for_its_value(node: Node) -> bool:
    """Whether a run of *node* does nothing but give its only output."""
    properties = node.properties
    changes = properties.op_def.is_stateful or any(dtype.is_ref for dtype in properties.input_dtypes)
    return len(properties.output_dtypes) == 1 and not changes


def _gathered(parts: Sequence[Part]) -> Callable[[Sequence[Any]], Sequence[object]]:
    """A function that makes all *parts*, in order."""
    if len(parts) > 1 and all(isinstance(part, int) for part in parts):
        return itemgetter(*parts)
    builds = [itemgetter(part) if isinstance(part, int) else part for part in parts]
    return lambda values: [build(values) for build in builds]


def _sequence(fetches: Sequence[object], parts: Sequence[Part]) -> Build:
    kind: Any = type(fetches)
    gather = _gathered(parts)
    if hasattr(fetches, "_fields"):
        return lambda values: kind(*gather(values))
    return lambda values: kind(gather(values))


def _mapping(fetches: Mapping[Any, object], keys: Sequence[object], parts: Sequence[Part]) -> Build:
    kind: Any = type(fetches) if isinstance(fetches, dict) else dict
    if isinstance(fetches, defaultdict):
        kind = partial(kind, fetches.default_factory)
    gather = _gathered(parts)
    return lambda values: kind(zip(keys, gather(values), strict=True))


def element(graph: Graph, given: object, role: str) -> Tensor | Node:
    """The tensor or operation of *graph* that *given*, one itself or a name, means.

    Raises:
        InvalidArgumentError: it is of another graph, or a name of nothing in this one.
        InvalidTypeError: it is neither.
    """
    if type(given) is Tensor and given.graph is graph:
        return given
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
            raise InvalidArgumentError(
                f"{role} {given.name!r} is not of this session's graph",
                hint="make a session of its own graph",
            )
        return given
    raise InvalidTypeError(f"{role} {given!r} is neither a tensor, an operation nor a name")


def structure_key(fetches: Any) -> Any:
    """A hashable key that is equal for equal nests of the same tensors, operations and names."""
    kind = type(fetches)
    if kind is Tensor or kind is str or kind is Node or isinstance(fetches, TensorSource):
        return fetches
    if kind is list or kind is tuple:
        return (kind, *[item if type(item) is Tensor else structure_key(item) for item in fetches])
    if isinstance(fetches, Mapping):
        # By id, since it may have no hash; what is cached under the key holds it, so that the id stays its own.
        factory = id(fetches.default_factory) if isinstance(fetches, defaultdict) else None
        keys = fetches if {*map(type, fetches)} in _EXACT else map(_exact_key, fetches)
        values = map(fetches.__getitem__, fetches)
        return (kind, factory, *keys, *[one if type(one) is Tensor else structure_key(one) for one in values])
    if isinstance(fetches, (list, tuple)):
        return (kind, *map(structure_key, fetches))
    if isinstance(fetches, str):
        return fetches
    if dataclasses.is_dataclass(fetches) and not isinstance(fetches, type):
        return (kind, *[structure_key(getattr(fetches, name)) for name in _field_names(fetches)])
    return (kind, id(fetches))  # it cannot be fetched


async def read_fetches(graph: Graph, fetches: object, key: object, clock: Clock) -> FetchMapper:
    """What *fetches*, of that structure key, ask for; InvalidArgumentError where they were changed meanwhile."""
    mapper = await run_in_slices(FetchMapper.stage(graph, fetches), clock)
    if hash(structure_key(fetches)) != hash(key):  # tensors have an == of their own
        raise InvalidArgumentError("the nest of fetches was changed while it was read")
    return mapper


def _exact_key(key: object) -> object:
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
