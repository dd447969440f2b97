"""Op types by name.  Declarations are kept as text and parsed when an op is first looked up.

Even the modules that hold them wait until then: the registry is given the names of the ops that there are, and a
loader that imports what declares one of them.  So an op is there (``in``, ``iter``, ``len``, the names an error
suggests) before its module is.

Ops that TensorFlow has and no module declares are known too, from a list that is read when one of them is looked up: a
graph may have them where nothing that runs needs their kernels.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from asyncexec.framework.errors import AlreadyExistsError, NotFoundError
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.op_def import OpDef, parse_op_def
from asyncexec.framework.shape_inference import ShapeFunction, unknown

_SIMILAR: Final = 0.8  # names that differ by a typo


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class OpRegistration:
    """An op type and what is known of its outputs before it runs.

    A user's own op brings its kernel along; the kernels of all others are in the kernel registry.

    Attributes:
        text_outputs: outputs that who fetches them gets as str.
    """

    op_def: OpDef
    shape_function: ShapeFunction
    kernel: KernelRegistration | None = None
    text_outputs: frozenset[int] = frozenset()


class OpList(Protocol):
    """Ops that are known and have no kernel."""

    def find(self, name: str) -> OpRegistration | None:
        """The op *name*, if it is in the list."""
        ...

    def names(self) -> Iterable[str]:
        """All of them."""
        ...


class OpRegistry:
    """Name -> OpRegistration."""

    def __init__(self) -> None:
        self._listed: OpList | None = None
        self._from_list: dict[str, OpRegistration] = {}
        self._parsed: dict[str, OpRegistration] = {}
        self._declared: dict[str, Callable[[], OpRegistration]] = {}
        self._loadable: Collection[str] = ()
        self._load: Callable[[str], object] = lambda name: None

    def set_loader(self, names: Collection[str], load: Callable[[str], object]) -> None:
        """Know the ops *names* from now on; *load* is called before one is looked up, and declares it and its kernels.

        It may be called again for the same op, and by several threads at once.
        """
        self._loadable, self._load = names, load

    def set_op_list(self, listed: OpList) -> None:
        """Know the ops of *listed* too; one of them is what the list says unless it is declared or registered."""
        self._listed = listed

    def declare(self, name: str, make: Callable[[], OpRegistration]) -> None:
        """Add an op whose registration *make* builds on first use; AlreadyExistsError when the name is taken."""
        if name in self._declared or name in self._parsed:
            raise AlreadyExistsError(f"op {name!r} is already registered")
        self._declared[name] = make

    def register(self, registration: OpRegistration, *, replace: bool = False) -> None:
        """Add an op; *replace* lets it stand in for an earlier one of the same name, unless that was declared."""
        name = registration.op_def.name
        if name in self._declared or name in self._loadable or (name in self._parsed and not replace):
            raise AlreadyExistsError(f"op {name!r} is already registered")
        self._parsed[name] = registration
        self._from_list.pop(name, None)

    def lookup(self, name: str) -> OpRegistration:
        """The op *name*; NotFoundError, with the nearest names, when there is none."""
        found = self.find(name)
        if found is None:
            near = self.nearest(name)
            raise NotFoundError(
                f"Op type not registered {name!r}",
                op=name,
                hint=f"did you mean {', '.join(near)}?" if near else None,
            )
        return found

    def nearest(self, name: str) -> list[str]:
        """The ops that *name* is likely to be a typo of."""
        return difflib.get_close_matches(name, list(self), n=3, cutoff=_SIMILAR)

    def find(self, name: str) -> OpRegistration | None:
        """The op *name*, or None when there is none."""
        return self._parsed.get(name) or self._from_list.get(name) or self._parse(name)

    def _parse(self, name: str) -> OpRegistration | None:
        # Even when the op is declared: the thread that is loading its module may not have come to the kernels yet.
        if name in self._loadable:
            self._load(name)
        make = self._declared.get(name)
        if make is not None:
            return self._parsed.setdefault(name, make())
        found = None if self._listed is None else self._listed.find(name)
        return None if found is None else self._from_list.setdefault(name, found)

    def is_loaded(self, name: str) -> bool:
        """Whether the op *name* is found without importing its module."""
        return name in self._parsed or name in self._from_list

    def is_implemented(self, name: str) -> bool:
        """Whether the op *name* is declared by a module or registered, and not just in the list."""
        return name in self._parsed or name in self._declared or name in self._loadable

    def implemented(self) -> list[str]:
        """The names of the ops that are declared by modules or registered."""
        return list(dict.fromkeys([*self._loadable, *self._declared, *self._parsed]))

    def __contains__(self, name: str) -> bool:
        return self.is_implemented(name) or (self._listed is not None and self._listed.find(name) is not None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> dict[str, None]:
        return dict.fromkeys([*self.implemented(), *(() if self._listed is None else self._listed.names())])


registry: OpRegistry = OpRegistry()


def register_op(
    name: str,
    signature: str,
    attrs: str = "",
    *,
    shape: ShapeFunction = unknown,
    is_stateful: bool = False,
    is_commutative: bool = False,
    allows_uninitialized_input: bool = False,
    touches_outside: bool = False,
    has_open_attrs: bool = False,
) -> None:
    """Declare an op in the notation of :mod:`asyncexec.framework.op_def`."""

    def make() -> OpRegistration:
        op_def = parse_op_def(
            name,
            signature,
            attrs,
            is_stateful=is_stateful,
            is_commutative=is_commutative,
            allows_uninitialized_input=allows_uninitialized_input,
            touches_outside=touches_outside,
            has_open_attrs=has_open_attrs,
        )
        return OpRegistration(op_def, shape)

    registry.declare(name, make)
