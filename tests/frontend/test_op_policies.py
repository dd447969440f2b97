"""retries= of ops: what is tried again, when, and what the error tells of it; and options that cannot be."""

from __future__ import annotations

import asyncio
import gc
import traceback
import weakref
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.retry import AttemptNote
from tests.frontend.policies import Flaky, failures, now, run, sleep_for
from tests.running import import_all_names, settle


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


@pytest.fixture
def graph() -> Iterator[ax.Graph]:
    with ax.Graph() as graph:
        ax.placeholder(ax.object, [], name="x")
        yield graph


def notes_of(error: BaseException) -> list[str]:
    """The lines on attempts in what Python prints of *error*."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return list(dict.fromkeys(line.strip() for line in lines if line.strip().startswith("attempt ")))


# --- retries --------------------------------------------------------------------------------------------------------


@pytest.mark.virtual_clock
async def test_waits_are_doubled_up_to_the_longest(graph: ax.Graph) -> None:
    flaky = Flaky(*failures(6))
    node = flaky.op(graph["x:0"], retries=ax.Retry(attempts=7, wait_initial_s=0.5, wait_max_s=5, jitter=0))
    assert await run(node, 7) == 7
    assert flaky.waits == [0.5, 1, 2, 4, 5, 5]


@pytest.mark.virtual_clock
async def test_a_number_is_of_attempts_after_the_first(graph: ax.Graph) -> None:
    flaky = Flaky(*failures(9))
    assert await run(flaky.op(graph["x:0"], retries=9), 7) == 7
    assert len(flaky.times) == 10
    for n, wait in enumerate(flaky.waits):
        longest = min(5, 0.05 * 2**n)
        assert longest / 2 <= wait <= longest


@pytest.mark.virtual_clock
async def test_jitter_comes_from_the_seed(graph: ax.Graph) -> None:
    retry = ax.Retry(attempts=4, wait_initial_s=1, wait_max_s=100, jitter=0.5, seed=7)
    random = Random(7)
    wanted = [round(2**n * (1 - random.random() / 2), 9) for n in range(3)]
    for _ in range(2):  # each session begins the series anew
        flaky = Flaky(*failures(3))
        await run(flaky.op(graph["x:0"], retries=retry))
        assert flaky.waits == wanted


@pytest.mark.virtual_clock
async def test_calls_at_the_same_time_do_not_count_for_each_other(graph: ax.Graph) -> None:
    calls: dict[int, int] = {}

    @ax.op(retries=ax.Retry(attempts=4, wait_initial_s=1, wait_max_s=1, jitter=0))
    async def fails_x_times(x: Any) -> Any:
        calls[x] = calls.get(x, 0) + 1
        await asyncio.sleep(0)
        if calls[x] <= x:
            raise ConnectionError
        return x

    node = fails_x_times(graph["x:0"])
    async with ax.Session(graph) as session:
        assert await asyncio.gather(*[session.run(node, {"x:0": x}) for x in range(4)]) == [0, 1, 2, 3]
    assert calls == {0: 1, 1: 2, 2: 3, 3: 4}


@pytest.mark.virtual_clock
async def test_an_error_after_retries_shows_every_attempt(graph: ax.Graph) -> None:
    flaky = Flaky(ConnectionError("reset\nby peer"), ax.errors.UnavailableError("busy"), OSError(), OSError("late"))
    retry = ax.Retry(attempts=3, wait_initial_s=0.25, jitter=0)
    with pytest.raises(ax.errors.OpError, match="OSError") as caught:
        await run(flaky.op(graph["x:0"], retries=retry, name="call"))
    assert (caught.value.node, caught.value.op) == ("call", "Flaky")
    assert isinstance(caught.value.__cause__, OSError)
    assert notes_of(caught.value) == [
        "attempt 1 of 3: ConnectionError: reset by peer; tried again after 0.25 s",
        "attempt 2 of 3: UnavailableError: busy; tried again after 0.5 s",
        "attempt 3 of 3: OSError",
    ]
    # In the text itself, which is all that some logs have, and not among the notes once more.
    assert notes_of(caught.value) == list(caught.value.attempts)
    assert all(f"\n  {line}" in str(caught.value) for line in caught.value.attempts)
    assert not getattr(caught.value, "__notes__", None)


@pytest.mark.virtual_clock
async def test_an_error_that_is_raised_again_has_the_attempts_of_each_call_alone(graph: ax.Graph) -> None:
    """One that names its node is not copied for that."""
    error = ax.errors.UnavailableError("down", node="elsewhere")
    node = Flaky(*[error] * 4).op(graph["x:0"], retries=ax.Retry(attempts=2, jitter=0))
    for _ in range(2):
        with pytest.raises(ax.errors.UnavailableError, match="down") as caught:
            await run(node)
        assert (len(caught.value.attempts), caught.value.node) == (2, "elsewhere")
    assert error.attempts == ()


@pytest.mark.virtual_clock
async def test_very_many_attempts_are_not_all_in_the_text(graph: ax.Graph) -> None:
    flaky = Flaky(*failures(50))
    with pytest.raises(ax.errors.OpError) as caught:
        await run(flaky.op(graph["x:0"], retries=ax.Retry(attempts=50, jitter=0)))
    assert len(caught.value.attempts) == 50
    lines = [line.strip() for line in str(caught.value).splitlines() if "attempt" in line or "more" in line]
    numbers = [line.split()[1] for line in lines]
    assert numbers == ["1", "2", "3", "4", "more)", "47", "48", "49", "50"]
    assert lines[4] == "(42 more)"


@pytest.mark.virtual_clock
async def test_an_error_of_ours_keeps_its_class_and_its_notes(graph: ax.Graph) -> None:
    flaky = Flaky(ax.errors.UnknownError("first"), ax.errors.UnavailableError("x" * 1000))
    with pytest.raises(ax.errors.UnavailableError) as caught:
        await run(flaky.op(graph["x:0"], retries=1, name="call"))
    assert caught.value.node == "call"
    first, last = caught.value.attempts
    assert first.startswith("attempt 1 of 2: UnknownError: first; tried again after ")
    assert last == f"attempt 2 of 2: UnavailableError: {'x' * 200}..."


@pytest.mark.virtual_clock
async def test_one_instance_raised_again_and_again_does_not_gather_notes(graph: ax.Graph) -> None:
    error = ConnectionError("always the same")
    error.add_note("of the user")
    flaky = Flaky(*[error] * 6)
    node = flaky.op(graph["x:0"], retries=2)
    for _ in range(2):
        with pytest.raises(ax.errors.OpError):
            await run(node)
    assert [isinstance(note, AttemptNote) for note in error.__notes__] == [False, True, True, True]


@pytest.mark.virtual_clock
async def test_the_first_attempt_alone_has_no_notes(graph: ax.Graph) -> None:
    flaky = Flaky(ValueError("wrong"))
    with pytest.raises(ax.errors.InvalidArgumentError) as caught:
        await run(flaky.op(graph["x:0"], retries=5))
    assert notes_of(caught.value) == []


@pytest.mark.virtual_clock
async def test_a_lasting_error_ends_the_attempts(graph: ax.Graph) -> None:
    flaky = Flaky(ConnectionError("gone"), ValueError("wrong"))
    with pytest.raises(ax.errors.InvalidArgumentError) as caught:
        await run(flaky.op(graph["x:0"], retries=5))
    assert [note.partition(";")[0] for note in notes_of(caught.value)] == [
        "attempt 1 of 6: ConnectionError: gone",
        "attempt 2 of 6: ValueError: wrong",
    ]


class OfSomeLibrary(Exception):
    """Derives from Exception alone, as httpx's errors do."""


TRANSIENT: list[BaseException] = [
    ConnectionResetError(),
    TimeoutError(),
    OSError(),
    RuntimeError(),
    OfSomeLibrary(),
    asyncio.IncompleteReadError(b"", 5),
    ax.errors.UnavailableError("x"),
    ax.errors.DeadlineExceededError("x"),
    ax.errors.ResourceExhaustedError("x"),
    ax.errors.UnknownError("x"),
]
LASTING: list[BaseException] = [
    ValueError(),
    UnicodeDecodeError("utf-8", b"", 0, 1, "x"),
    TypeError(),
    KeyError(),
    ZeroDivisionError(),
    AssertionError(),
    AttributeError(),
    NameError(),
    NotImplementedError(),
    RecursionError(),
    FileNotFoundError(),
    PermissionError(),
    ax.errors.InvalidArgumentError("x"),
    ax.errors.NotFoundError("x"),
    ax.errors.FailedPreconditionError("x"),
    ax.errors.InternalError("x"),
    ax.errors.OutOfRangeError("x"),
    ax.errors.AbortedError("x"),
    ax.errors.CancelledError("x"),
    asyncio.CancelledError(),
]


@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("error", "calls"), [*[(error, 2) for error in TRANSIENT], *[(error, 1) for error in LASTING]], ids=repr
)
async def test_what_is_tried_again(graph: ax.Graph, error: BaseException, calls: int) -> None:
    flaky = Flaky(error)
    node = flaky.op(graph["x:0"], retries=1)
    if calls == 2:
        assert await run(node, 7) == 7
    else:
        with pytest.raises(ax.errors.OpError):
            await run(node)
    assert len(flaky.times) == calls


@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("on", "error", "calls"),
    [
        (KeyError, KeyError(), 2),
        (LookupError, KeyError(), 2),
        ((KeyError, ValueError), ValueError(), 2),
        ([ValueError], ValueError(), 2),
        (KeyError, ConnectionError(), 1),
        (Exception, asyncio.CancelledError(), 1),
        (Exception, ax.errors.CancelledError("x"), 1),
    ],
    ids=repr,
)
async def test_classes_to_try_again_after(graph: ax.Graph, on: Any, error: BaseException, calls: int) -> None:
    flaky = Flaky(error)
    node = flaky.op(graph["x:0"], retries=ax.Retry(attempts=2, on=on))
    if calls == 2:
        assert await run(node, 7) == 7
    else:
        with pytest.raises(ax.errors.OpError):
            await run(node)
    assert len(flaky.times) == calls


@pytest.mark.virtual_clock
async def test_the_callers_cancellation_ends_the_back_off(graph: ax.Graph) -> None:
    flaky = Flaky(*failures(1))
    node = flaky.op(graph["x:0"], retries=ax.Retry(attempts=2, wait_initial_s=100, wait_max_s=100, jitter=0))
    begin = now()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(run(node), 50)
    assert (now() - begin, len(flaky.times)) == (50, 1)


@pytest.mark.virtual_clock
async def test_run_timeout_holds_for_all_attempts(graph: ax.Graph) -> None:
    flaky = Flaky(*failures(1000))
    node = flaky.op(graph["x:0"], retries=ax.Retry(attempts=1000, wait_initial_s=1, wait_max_s=1, jitter=0))
    with pytest.raises(ax.errors.DeadlineExceededError, match="the run took more"):
        await run(node, options=ax.RunOptions(timeout=59.5))
    assert len(flaky.times) == 60


async def test_nothing_holds_the_inputs_of_a_call_that_failed(graph: ax.Graph) -> None:
    class Big:
        pass

    async def fail(x: Any) -> Any:
        raise ConnectionError

    node = ax.op(retries=ax.Retry(attempts=3, wait_initial_s=0, wait_max_s=0))(fail)(graph["x:0"])
    big = Big()
    alive = weakref.ref(big)
    async with ax.Session(graph) as session:
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(ax.errors.OpError) as caught:
                await session.run(node, {"x:0": big})
            del caught, big
            await settle()
            assert alive() is None
        finally:
            gc.enable()


# --- what cannot be -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "a timeout is a number of seconds, more than 0, not 0"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"retries": 1.5}, "retries"),
        ({"retries": True}, "retries"),
        ({"limiter": 0}, "limiter"),
        ({"limiter": True}, "limiter"),
        ({"limiter": 2.5}, "limiter"),
        ({"limiter": "tests.unknown"}, "tests.unknown"),
    ],
)
def test_options_that_cannot_be(graph: ax.Graph, options: dict[str, Any], message: str) -> None:
    for make in (
        lambda: ax.op(name="Options", **options)(sleep_for),
        lambda: ax.op(name="Options")(sleep_for)(graph["x:0"], **options),
        lambda: ax.op(name="Options")(sleep_for).options(**options),
    ):
        with pytest.raises(ax.errors.InvalidArgumentError, match=f"op 'Options': .*{message}"):
            make()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"attempts": 0}, "attempts is a number of 1 or more, not 0"),
        ({"attempts": 2.0}, "attempts"),
        ({"wait_initial_s": -1}, "wait_initial_s is a number of 0 or more, not -1"),
        ({"wait_max_s": float("inf")}, "wait_max_s"),
        ({"wait_initial_s": float("nan")}, "wait_initial_s"),
        ({"wait_initial_s": 6}, "wait_max_s=5.0 is less than wait_initial_s=6"),
        ({"jitter": 1.5}, "jitter is a number from 0 to 1, not 1.5"),
        ({"on": 5}, "classes of exceptions, not 5"),
        ({"on": (ValueError, "x")}, "classes of exceptions, not 'x'"),
        ({"on": asyncio.CancelledError}, "never tried again"),
        ({"on": KeyboardInterrupt}, "classes of exceptions"),
    ],
)
def test_a_retry_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match=message):
        ax.Retry(**values)


def test_a_graph_def_shows_the_options(graph: ax.Graph) -> None:
    limiter = ax.Limiter(3, name="tests.shown")
    node = ax.op(name="Shown")(sleep_for)(graph["x:0"], timeout=2, retries=4, limiter=limiter, name="n")
    [shown] = [n for n in node.graph.as_graph_def().node if n.name == "n"]
    assert (shown.attr["_timeout_s"].f, shown.attr["_retries"].i) == (2, 4)
    assert shown.attr["_limiter"].s == b"tests.shown"
