"""Which calls of libraries may take several threads."""

from __future__ import annotations

import os
import threading
from itertools import count

import pytest

from asyncexec.process.cores import (
    CoreBudget,
    call_and_stay,
    call_on_first_core,
    leave_first_core,
    num_cores,
    num_idle_cores,
    other_cores,
)
from asyncexec.process.gil_switches import start_thread


def test_a_large_call_alone_gets_the_idle_cores_and_others_one() -> None:
    budget = CoreBudget(lambda: 3)
    assert budget.begin(is_large=False) == 1
    assert budget.begin(is_large=True) == 1
    budget.end()
    budget.end()
    assert budget.begin(is_large=True) == 3
    assert budget.begin(is_large=True) == 1
    budget.end()
    budget.end()
    assert budget.begin(is_large=True) == 3


def test_what_is_idle_is_not_asked_for_small_calls() -> None:
    asked: list[None] = []
    budget = CoreBudget(lambda: asked.append(None) or 2)
    budget.begin(is_large=False)
    budget.begin(is_large=True)
    assert not asked


def test_a_long_call_waits_a_moment_where_cores_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("asyncexec.process.cores.num_cores", lambda: 4)
    monkeypatch.setattr("time.sleep", waited.append)
    now_ns = count(0, 20_000_000)
    monkeypatch.setattr("time.monotonic_ns", lambda: next(now_ns))
    found = iter([1, 4, 2, 1, 4])
    budget = CoreBudget(lambda: next(found))
    for expected in (4, 2, 4):  # taken at first; taken still; idle
        assert budget.begin(is_large=True, patience_s=0.25) == expected
        budget.end()
    assert waited == [0.25, 0.25]
    assert budget.begin(is_large=False, patience_s=0.25) == 1
    assert waited == [0.25, 0.25]


def test_short_calls_in_a_row_look_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [0]
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns[0])
    monkeypatch.setattr("asyncexec.process.cores.num_cores", lambda: 4)
    found = iter([2, 3, 4, 1])
    budget = CoreBudget(lambda: next(found))
    for at_ns, patience_s, expected in (
        (0, 0.0, 2),
        (1_900_000, 0.0, 2),
        (2_000_000, 0.0, 3),
        (3_900_000, 0.0, 3),
        (3_900_000, 0.25, 4),  # who waits for idle cores looks, unless all were idle just now
        (13_800_000, 0.25, 4),
        (13_900_000, 0.0, 1),
    ):
        now_ns[0] = at_ns
        assert budget.begin(is_large=True, patience_s=patience_s) == expected
        budget.end()


def test_some_core_is_there() -> None:
    assert 1 <= num_idle_cores() <= num_cores()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no such call")
def test_a_caller_on_the_first_core_leaves_the_others_and_is_free_again() -> None:
    cores = os.sched_getaffinity(0)
    inside = call_on_first_core(os.sched_getaffinity, 0)
    assert os.sched_getaffinity(0) == cores
    if num_cores() == len(cores) > 1:
        assert inside == {min(cores)}
        assert inside | set(other_cores()) == cores
    else:
        assert (inside, list(other_cores())) == (cores, [])
    with pytest.raises(KeyError):
        call_on_first_core({}.__getitem__, 1)
    assert os.sched_getaffinity(0) == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no such call")
def test_a_caller_may_stay_on_the_first_core_until_it_leaves_it() -> None:
    cores = os.sched_getaffinity(0)
    inside = call_on_first_core(os.sched_getaffinity, 0)

    def twice() -> list[set[int]]:
        return [call_on_first_core(os.sched_getaffinity, 0), os.sched_getaffinity(0), call_on_first_core(len, "")]

    assert call_and_stay(twice) == [inside, inside, 0]
    assert os.sched_getaffinity(0) == inside
    leave_first_core()
    assert os.sched_getaffinity(0) == cores
    with pytest.raises(KeyError):
        call_and_stay(call_on_first_core, {}.__getitem__, 1)
    leave_first_core()
    assert os.sched_getaffinity(0) == cores
    call_on_first_core(len, "")
    assert os.sched_getaffinity(0) == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no such call")
def test_a_thread_that_is_started_by_one_that_stays_has_all_cores() -> None:
    cores, found = os.sched_getaffinity(0), []
    thread = threading.Thread(target=lambda: found.append(os.sched_getaffinity(0)))
    call_and_stay(lambda: (call_on_first_core(len, ""), start_thread(thread)))
    thread.join()
    assert found == [cores]
    assert os.sched_getaffinity(0) == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no such call")
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_leaves_no_caller_on_the_first_core(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    cores, get, calls = os.sched_getaffinity(0), os.sched_getaffinity, []

    def interrupted(thread: int) -> set[int]:
        calls.append(thread)
        if len(calls) == times:
            raise KeyboardInterrupt
        return get(thread)

    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(map(call_on_first_core, [len] * 2, ["", ""]))  # one looks once where there is one core
    assert os.sched_getaffinity(0) == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no such call")
def test_threads_find_their_cores_where_the_process_may_use_fewer_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("asyncexec.process.cores._LIMIT", 1.0)
    cores = os.sched_getaffinity(0)
    assert call_on_first_core(os.sched_getaffinity, 0) == cores
    assert not other_cores()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no such call")
def test_a_system_that_lets_no_thread_choose_its_core_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert call_on_first_core(len, "four") == 4
