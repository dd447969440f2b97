"""CancellationManager: the cases of TensorFlow's cancellation_test.cc, and grandchildren, threads and errors.

Which case is where: ``CANCELLATION`` in ``tests/session/test_tf_cancellation_cases.py``.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from random import Random
from weakref import ref

import pytest

from asyncexec.framework.cancellation import CancellationManager
from asyncexec.framework.errors import InvalidArgumentError


@pytest.fixture
def manager() -> CancellationManager:
    return CancellationManager()


@pytest.fixture
def calls() -> list[str]:
    return []


def register(manager: CancellationManager, callback: Callable[[], object]) -> int:
    """The token under which *callback* is registered."""
    token = manager.get_cancellation_token()
    assert manager.register_callback(token, callback)
    return token


def test_without_a_cancel_nothing_is_called(manager: CancellationManager, calls: list[str]) -> None:
    token = register(manager, lambda: calls.append("called"))
    assert manager.deregister_callback(token)
    manager.start_cancel()
    assert calls == []


def test_a_cancel_calls_back_once(manager: CancellationManager, calls: list[str]) -> None:
    register(manager, lambda: calls.append("called"))
    assert not manager.is_cancelled
    manager.start_cancel()
    manager.start_cancel()
    assert calls == ["called"]
    assert manager.is_cancelled


def test_registering_after_a_cancel_is_refused(manager: CancellationManager, calls: list[str]) -> None:
    token = manager.get_cancellation_token()
    manager.start_cancel()
    assert not manager.register_callback(token, lambda: calls.append("called"))
    assert calls == []


def test_deregistering_after_a_cancel_says_so(manager: CancellationManager, calls: list[str]) -> None:
    token = register(manager, lambda: calls.append("called"))
    manager.start_cancel()
    assert calls == ["called"]
    assert not manager.deregister_callback(token)


def test_every_callback_is_called_and_a_later_one_refused(manager: CancellationManager, calls: list[str]) -> None:
    register(manager, lambda: calls.append("first"))
    register(manager, lambda: calls.append("second"))
    assert calls == []
    manager.start_cancel()
    assert sorted(calls) == ["first", "second"]
    assert not manager.register_callback(manager.get_cancellation_token(), lambda: calls.append("third"))
    assert sorted(calls) == ["first", "second"]


def test_spinning_threads_see_the_cancel(manager: CancellationManager) -> None:
    started = threading.Barrier(9)

    def spin() -> None:
        started.wait()
        while not manager.is_cancelled:
            pass

    threads = [threading.Thread(target=spin) for _ in range(8)]
    for thread in threads:
        thread.start()
    started.wait()
    manager.start_cancel()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_try_deregister_without_a_cancel(manager: CancellationManager, calls: list[str]) -> None:
    token = register(manager, lambda: calls.append("called"))
    assert manager.try_deregister_callback(token)
    manager.start_cancel()
    assert calls == []


def test_try_deregister_after_a_cancel(manager: CancellationManager, calls: list[str]) -> None:
    token = register(manager, lambda: calls.append("called"))
    manager.start_cancel()
    assert calls == ["called"]
    assert not manager.try_deregister_callback(token)


def test_try_deregister_during_a_cancel_does_not_wait(manager: CancellationManager) -> None:
    is_cancelling, goes_on = threading.Event(), threading.Event()

    def callback() -> None:
        is_cancelling.set()
        assert goes_on.wait(20)

    token = register(manager, callback)
    thread = threading.Thread(target=manager.start_cancel)
    thread.start()
    assert is_cancelling.wait(20)
    assert manager.is_cancelling
    assert not manager.is_cancelled
    assert not manager.try_deregister_callback(token)
    assert not manager.register_callback(manager.get_cancellation_token(), lambda: None)
    goes_on.set()
    thread.join(20)
    assert manager.is_cancelled
    assert not manager.is_cancelling


def test_deregister_during_a_cancel_waits_until_the_callbacks_have_returned(manager: CancellationManager) -> None:
    is_cancelling, goes_on = threading.Event(), threading.Event()
    order: list[str] = []

    def callback() -> None:
        is_cancelling.set()
        assert goes_on.wait(20)
        order.append("called back")

    def deregister() -> None:
        assert not manager.deregister_callback(token)
        order.append("deregistered")

    token = register(manager, callback)
    threads = [threading.Thread(target=manager.start_cancel), threading.Thread(target=deregister)]
    threads[0].start()
    assert is_cancelling.wait(20)
    threads[1].start()
    goes_on.set()
    for thread in threads:
        thread.join(20)
    assert order == ["called back", "deregistered"]


def test_a_callback_may_deregister_itself(manager: CancellationManager) -> None:
    results: list[bool] = []
    token = manager.get_cancellation_token()
    assert manager.register_callback(token, lambda: results.append(manager.deregister_callback(token)))
    manager.start_cancel()
    assert results == [False]


def test_one_thread_of_many_calls_back(manager: CancellationManager) -> None:
    started = threading.Barrier(4)
    calls: list[int] = []
    register(manager, lambda: calls.append(1))

    def cancel() -> None:
        started.wait()
        manager.start_cancel()

    threads = [threading.Thread(target=cancel) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert calls == [1]


def test_children_are_cancelled_with_their_parent(manager: CancellationManager) -> None:
    children = [CancellationManager(manager) for _ in range(5)]
    assert not any(child.is_cancelled for child in children)
    manager.start_cancel()
    assert all(child.is_cancelled for child in children)


def test_a_grandchild_is_cancelled_with_its_parent(manager: CancellationManager, calls: list[str]) -> None:
    child = CancellationManager(manager)
    grandchild = CancellationManager(child)
    register(grandchild, lambda: calls.append("grandchild"))
    register(manager, lambda: calls.append("parent"))
    manager.start_cancel()
    assert calls == ["parent", "grandchild"]
    assert child.is_cancelled
    assert grandchild.is_cancelled


def test_a_parent_is_not_cancelled_with_its_child(manager: CancellationManager) -> None:
    child, sibling = CancellationManager(manager), CancellationManager(manager)
    child.start_cancel()
    assert child.is_cancelled
    assert not manager.is_cancelled
    assert not sibling.is_cancelled


def test_a_child_of_a_cancelled_parent_is_cancelled(manager: CancellationManager) -> None:
    manager.start_cancel()
    assert CancellationManager(manager).is_cancelled


@pytest.mark.parametrize("seed", range(5))
def test_a_parent_does_not_keep_its_children(manager: CancellationManager, seed: int) -> None:
    """Which may go in any order."""
    random = Random(seed)
    for _ in range(20):
        children = [CancellationManager(manager) for _ in range(random.randint(1, 9))]
        gone = ref(children[-1])
        random.shuffle(children)
        while children:
            children.pop()
        gc.collect()
        assert gone() is None
    last = CancellationManager(manager)
    manager.start_cancel()
    assert last.is_cancelled


def test_what_a_callback_raises_comes_after_the_other_callbacks(manager: CancellationManager, calls: list[str]) -> None:
    def fail() -> None:
        raise RuntimeError("first")

    register(manager, fail)
    register(manager, lambda: calls.append("second"))
    with pytest.raises(RuntimeError, match="first"):
        manager.start_cancel()
    assert calls == ["second"]
    assert manager.is_cancelled


@pytest.mark.parametrize("token", [-1, 0, 7])
def test_a_token_that_was_not_given_out_is_refused(manager: CancellationManager, token: int) -> None:
    with pytest.raises(InvalidArgumentError, match="was not given out"):
        manager.register_callback(token, lambda: None)


def test_a_callback_is_not_kept_after_the_cancel(manager: CancellationManager) -> None:
    class Callback:
        def __call__(self) -> None: ...

    callback = Callback()
    kept = ref(callback)
    register(manager, callback)
    del callback
    manager.start_cancel()
    assert kept() is None
