"""What a step raises for an exception of a user's: an OpError that is of the user's class, too."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any, Self

import pytest

import asyncexec as ax
from asyncexec.framework.errors import Code, OpError
from asyncexec.framework.foreign_errors import as_op_error


class NeedsMore(Exception):
    """Not to be made of a text alone."""

    def __init__(self, status: int, *, url: str) -> None:
        super().__init__(f"{status} at {url}")
        self.status = status
        self.url = url

    @property
    def is_final(self) -> bool:
        return self.status >= 500


class OfOwnMaking(Exception):
    def __new__(cls, one: int, other: int) -> Self:
        return super().__new__(cls, one, other)


class WithSlots(Exception):
    __slots__ = ("value",)


class WithOurNames(Exception):
    def __init__(self) -> None:
        super().__init__("theirs")
        self.code, self.node, self.hint, self.extra = 400, "their node", "their hint", "kept"


class WithProperty(Exception):
    @property
    def message(self) -> str:
        return "not to be set"


class OfTime(TimeoutError):
    pass


def with_slots() -> WithSlots:
    error = WithSlots("text")
    error.value = 3
    return error


COMBINED: list[tuple[Exception, type[OpError], dict[str, Any]]] = [
    (NeedsMore(503, url="/a"), ax.errors.UnknownError, {"status": 503, "url": "/a", "is_final": True}),
    (OfOwnMaking(1, 2), ax.errors.UnknownError, {}),
    (with_slots(), ax.errors.UnknownError, {"value": 3}),
    (WithOurNames(), ax.errors.UnknownError, {"code": Code.UNKNOWN, "node": "node", "hint": None, "extra": "kept"}),
    (OfTime("late"), ax.errors.DeadlineExceededError, {}),
    (KeyError("name"), ax.errors.NotFoundError, {}),
    (FileNotFoundError(2, "no such file", "a.txt"), ax.errors.NotFoundError, {"errno": 2, "filename": "a.txt"}),
    (ConnectionRefusedError(111, "refused"), ax.errors.UnavailableError, {"errno": 111, "strerror": "refused"}),
    (UnicodeDecodeError("utf8", b"x", 0, 1, "bad"), ax.errors.InvalidArgumentError, {"encoding": "utf8", "end": 1}),
    (ImportError("no", name="lib"), ax.errors.UnknownError, {"name": "lib"}),
    (ZeroDivisionError("by zero"), ax.errors.InvalidArgumentError, {}),
    (RuntimeError("broken"), ax.errors.UnknownError, {}),
]


def failing(raised: BaseException, *, is_async: bool) -> ax.Graph:
    def fail(x: float) -> float:
        raise raised

    async def fail_later(x: float) -> float:
        await asyncio.sleep(0)
        raise raised

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        ax.op(name="Fail")(fail_later if is_async else fail)(x, name="node")
    return graph


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("executor_type", ["", "COMPILED"])
@pytest.mark.parametrize(("raised", "kind", "attributes"), COMBINED)
async def test_an_exception_is_caught_by_its_class(
    raised: Exception, kind: type[OpError], attributes: dict[str, Any], executor_type: str, is_async: bool
) -> None:
    graph = failing(raised, is_async=is_async)
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        with pytest.raises(type(raised)) as caught:
            await session.run("node:0", {"x:0": 1.0})
    error = caught.value
    assert isinstance(error, kind)
    assert (error.node, error.op, error.code) == ("node", "Fail", kind.code)
    assert error.__cause__ is raised
    assert str(error).startswith(f"{type(raised).__name__}")
    assert {name: getattr(error, name) for name in attributes} == attributes


@pytest.mark.parametrize("raised", [raised for raised, *_ in COMBINED])
@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error)), OpError.located])
def test_copies_are_of_both_classes(raised: Exception, copied: Any) -> None:
    error = as_op_error(raised, Place)
    assert isinstance(error, OpError)
    other = copied(error, "node", "Fail", None) if copied is OpError.located else copied(error)
    assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))


class Place:
    name, op, user_line = "node", "Fail", None


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ValueError("x"), ax.errors.InvalidArgumentError),
        (TimeoutError(), ax.errors.DeadlineExceededError),
        (StopIteration(1), ax.errors.UnknownError),
        (StopAsyncIteration(), ax.errors.UnknownError),
        (asyncio.CancelledError(), ax.errors.CancelledError),
        (ExceptionGroup("several", [ValueError()]), ax.errors.UnknownError),
        (WithProperty("x"), ax.errors.UnknownError),
    ],
)
def test_what_is_not_combined(raised: BaseException, kind: type[OpError]) -> None:
    error = as_op_error(raised, Place)
    assert type(error) is kind
    assert error.__cause__ is raised


def test_classes_are_made_once_and_not_kept_for_ever() -> None:
    one, other = as_op_error(NeedsMore(1, url="a"), Place), as_op_error(NeedsMore(2, url="b"), Place)
    assert type(one) is type(other)
    for number in range(300):
        made = as_op_error(type(f"Made{number}", (Exception,), {})(), Place)
        assert type(made).__name__ == f"UnknownError[Made{number}]"
    from asyncexec.framework import combined_errors

    assert len(combined_errors._known) <= combined_errors._MANY
