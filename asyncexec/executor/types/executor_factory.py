"""The types of executors that there are (``executor_factory.cc`` in TensorFlow)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.types.breadth_first_executor import BREADTH_FIRST, BreadthFirstExecutor
from asyncexec.executor.types.executor_params import ExecutorParams, general_executor
from asyncexec.executor.types.host_executor import ExecutorFactory, host_executor
from asyncexec.executor.types.local_executor import LocalExecutor
from asyncexec.framework.cooperative import Stage
from asyncexec.framework.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from asyncexec.framework.executor import Executor
from asyncexec.graph.graph import Graph

DEFAULT_EXECUTOR_TYPE: Final = "DEFAULT"

F = TypeVar("F", bound=Callable[[ExecutorParams], Any])


class Compiles(Enum):
    """When a session compiles signatures to Python."""

    NEVER = 0
    WHEN_MEASURED = 1  # after the first runs
    AT_ONCE = 2  # before the first run


@dataclass(frozen=True, slots=True, eq=False)
class ExecutorType:
    """A type of executors.

    Attributes:
        factory: makes an executor of the graph of one device.
        compiles: when a session does so.
        is_ours: it is the general executor; else the general executor hosts it.
    """

    name: str
    factory: ExecutorFactory
    compiles: Compiles = Compiles.NEVER
    is_ours: bool = False

    def make(self, params: ExecutorParams) -> Stage[GeneralExecutor]:
        """What a session runs the graph of *params* by, as a stage; errors of general_executor or host_executor."""
        return general_executor(params) if self.is_ours else host_executor(self.name, self.factory, params)


class ExecutorTypes:
    """Executor types by name."""

    def __init__(self) -> None:
        self._types: dict[str, ExecutorType] = {}

    def register(self, executor_type: ExecutorType) -> None:
        """Add a type; AlreadyExistsError when there is one of that name."""
        if executor_type.name in self._types:
            raise AlreadyExistsError(f"there is already an executor factory for {executor_type.name!r}")
        self._types[executor_type.name] = executor_type

    def unregister(self, name: str) -> None:
        """Take a type out; NotFoundError when there is none of that name."""
        del self._types[self.lookup(name).name]

    def lookup(self, name: str) -> ExecutorType:
        """The type *name*; NotFoundError, with the names that there are, when there is none."""
        found = self._types.get(name or DEFAULT_EXECUTOR_TYPE)
        if found is None:
            raise NotFoundError(
                f"no executor factory is registered for the executor type {name!r}; "
                f"those that are registered: {', '.join(sorted(self._types))}"
            )
        return found

    def __iter__(self) -> Iterator[ExecutorType]:
        return iter(self._types.values())


executor_types: Final = ExecutorTypes()
for _name, _compiles in (
    (DEFAULT_EXECUTOR_TYPE, Compiles.WHEN_MEASURED),
    ("TAGGED_TOKEN", Compiles.NEVER),
    ("COMPILED", Compiles.AT_ONCE),
):
    executor_types.register(ExecutorType(_name, LocalExecutor, _compiles, is_ours=True))
executor_types.register(ExecutorType(BREADTH_FIRST, BreadthFirstExecutor))


def executor_factory(name: str) -> Callable[[F], F]:
    """Decorator: registers a class, or a function, that makes executors of the type *name* from ``ax.ExecutorParams``.

    Sessions with ``SessionConfig(executor_type=name)`` run the graph of each device with one of them.  Feeds and
    fetches travel by the rendezvous.

    Raises:
        InvalidArgumentError: *name* is no text, or empty.
        AlreadyExistsError: there is an executor type of that name.
    """
    if not name or not isinstance(name, str):
        raise InvalidArgumentError(f"an executor type has a name, not {name!r}", hint='@ax.executor_factory("MINE")')

    def decorate(factory: F) -> F:
        executor_types.register(ExecutorType(name, factory))
        return factory

    return decorate


def new_executor(graph: Graph | ExecutorParams, executor_type: str = "") -> Executor:
    """An executor of all nodes of *graph*, outside of any session; built-in types differ in sessions alone.

    Args:
        graph: a graph, which runs on a CPU device with variables of its own; or what a factory was given.
        executor_type: the name of a type.

    Raises:
        NotFoundError: there is no such type.
        OpError: the graph cannot be run by it; the error names the node.
    """
    kind = executor_types.lookup(executor_type)
    return kind.factory(ExecutorParams.of(graph) if isinstance(graph, Graph) else graph)
