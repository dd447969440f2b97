"""Errors that exist only because of another error of the same step.

When one part of a step fails, the others are woken with an error of their own.  Those are marked as derived, so that
whoever gathers the errors of a step can report the cause (``StatusGroup::MakeDerived`` in
``tensorflow/core/platform/status.cc``).
"""

from __future__ import annotations

from typing import Final, TypeVar

from asyncexec.framework.errors import OpError

E = TypeVar("E", bound=OpError)

_MARK: Final = "_is_derived"


def make_derived(error: E) -> E:
    """A copy of *error* marked as derived, with the same cause and without the traceback."""
    copy = copy_of(error)
    setattr(copy, _MARK, True)
    return copy


def copy_of(error: E) -> E:
    """A copy of *error* with the same cause and without the traceback, for one of several who raise it."""
    copy = type(error).__new__(type(error), *error.args)
    vars(copy).update(vars(error))
    copy.__cause__, copy.__suppress_context__ = error.__cause__, error.__suppress_context__
    return copy


def without_frames(error: OpError) -> OpError:
    """What *error* says, for who keeps it: a copy that holds no traceback, and so nothing of a step."""
    copy = make_derived(error)
    copy.__cause__ = None
    return copy


def is_derived(error: BaseException) -> bool:
    """Whether *error* was marked by ``make_derived``; copies of it that name a node are too."""
    return bool(getattr(error, _MARK, False))
