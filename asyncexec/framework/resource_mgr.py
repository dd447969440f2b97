"""Resources of a session by (type, container, name): variables, queues, tables (``resource_mgr.h``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from asyncexec.framework.background import BackgroundTasks
from asyncexec.framework.directing import Director
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.file_access import FileAccess
from asyncexec.framework.function_runtime import FunctionRuntime
from asyncexec.framework.process_calls import ProcessCalls

R = TypeVar("R")


@runtime_checkable
class Restorable(Protocol):
    """A resource whose contents can be stored, and put back into one of the same node."""

    def to_state(self) -> tuple[Mapping[str, Any], Sequence[Any]]:
        """Its contents: what JSON can have, and tensors, which nobody changes from now on; None is no tensor."""
        ...

    def from_state(self, about: Mapping[str, Any], values: Sequence[Any]) -> None:
        """Have the contents that ``to_state`` gave; ValueError, TypeError or LookupError where they are of others."""
        ...


class ResourceMgr:
    """What outlives a step.  A resource handle that travels along an edge is the resource object itself.

    Where there is a session, *processes* makes calls in its worker processes, *functions* runs functions of its graph,
    and *files* tells which files its ops may touch.  *background* has the tasks of its resources.  A *director* plays
    nodes instead of calling their kernels.

    Where a name is of another kind of resource already, a graph that uses it fails with InvalidArgumentError.

    Args:
        shared: where resources are that the sessions of one event loop share; they outlive this one.
    """

    def __init__(self, shared: ResourceMgr | None = None) -> None:
        self._shared = shared
        self.processes: ProcessCalls | None = None
        self.functions: FunctionRuntime | None = None
        self.director: Director | None = None if shared is None else shared.director
        self.files: FileAccess = FileAccess()
        self.background: BackgroundTasks = BackgroundTasks()
        self._resources: dict[tuple[str, str], object] = {}

    def lookup_or_create(
        self, kind: type[R], container: str, name: str, create: Callable[[], R], *, is_shared: bool = False
    ) -> R:
        """The resource of that name, made by *create* when there is none yet.

        Args:
            is_shared: whether other sessions mean the same by that name, if they share any.

        Raises:
            InvalidArgumentError: there is one, of another kind.
        """
        if is_shared and self._shared is not None:
            return self._shared.lookup_or_create(kind, container, name, create)
        key = (container, name)
        found = self._resources.get(key)
        if found is None:
            found = self._resources.setdefault(key, create())  # another thread may have been quicker
        if not isinstance(found, kind):
            raise InvalidArgumentError(f"resource {name!r} is a {type(found).__name__}, not a {kind.__name__}")
        return found

    def items(self) -> dict[tuple[str, str], Any]:
        """All there are, and those that are shared, by container and name."""
        shared = {} if self._shared is None else self._shared.items()
        return shared | self._resources

    def resources(self) -> list[Any]:
        """All there are."""
        return list(self._resources.values())

    @property
    def is_in_use(self) -> bool:
        """Whether a resource is at work between the steps."""
        return self.background.is_in_use

    def drop_loop(self) -> None:
        """Tell every resource that has a ``drop_loop``: what is under way waits in a loop that is closed."""
        self.background.drop_loop()
        for resource in list(self._resources.values()):
            drop = getattr(resource, "drop_loop", None)
            if drop is not None:
                drop()

    def delete(self, container: str, name: str) -> bool:
        """Forget a resource; whether there was one."""
        return self._resources.pop((container, name), None) is not None

    def close(self, containers: Collection[str] | None = None) -> None:
        """Close every resource that has a ``close``, and forget it: all of them, or those in *containers*."""
        closed = [key for key in self._resources if containers is None or key[0] in containers]
        for resource in [self._resources.pop(key) for key in closed]:
            close = getattr(resource, "close", None)
            if close is not None:
                close()

    def __len__(self) -> int:
        return len(self._resources)
