"""Whom the running code works for, where it is run once for many, as a batch is.

Context variables tell running code what it is a part of: calls that hold slots of limiters, steps that were let in at
a place.  Whoever would wait for something looks there, since that might be for itself to give back.  A batch runs in a
copy of one context, its first caller's, but all who wait for it are in the same position: so it says whom it works for,
and they are asked, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextvars import Context, ContextVar
from typing import Final, Protocol

from asyncexec.framework.errors import OpError


class Caller(Protocol):
    """One who waits for what others wait for as well.

    Attributes:
        context: what it has called from.
    """

    context: Context

    def fail(self, error: OpError) -> None:
        """Let it wait no longer, and get *error*; the others do not notice."""
        ...


class Group(Protocol):
    """Those who wait for one thing that runs, at any time."""

    def callers(self) -> Iterable[Caller]:
        """Who they are just now."""
        ...


_group: Final[ContextVar[Group | None]] = ContextVar("asyncexec_group", default=None)


def work_for(group: Group) -> None:
    """What runs in this context from now on runs for the callers of *group*."""
    _group.set(group)


def has_group() -> bool:
    """Whether the running code works for a group."""
    return _group.get() is not None


def groups_around(context: Context | None = None) -> Iterator[Group]:
    """The group that what runs in *context*, by default the running code, works for, and those of its callers."""
    return groups_with(_group.get() if context is None else context.get(_group))


def group_of(context: Context) -> Group | None:
    """The group that what runs in *context* works for."""
    return context.get(_group)


def groups_with(*groups: Group | None) -> Iterator[Group]:
    """*groups*, and those that their callers work for."""
    seen: set[Group] = set()
    pending = list(groups)
    while pending:
        group = pending.pop()
        if group is not None and group not in seen:
            seen.add(group)
            yield group
            pending += [caller.context.get(_group) for caller in group.callers()]


def callers_around() -> Iterator[Caller]:
    """All who wait for the running code, and those who wait for them."""
    for group in groups_around():
        yield from group.callers()


def is_within(context: Context, groups: set[Group]) -> bool:
    """Whether one of *groups* waits for what runs in *context*."""
    return not groups.isdisjoint(groups_around(context))
