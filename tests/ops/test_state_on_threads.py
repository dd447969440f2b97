"""What kernels on several threads change: no change is lost, and none is made of what is no longer so."""

from __future__ import annotations

import os
from functools import partial
from threading import Barrier, Event, Thread
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import float64, int64
from asyncexec.ops.state import variable_state
from asyncexec.ops.state.lookup_table import MutableHashTable
from asyncexec.ops.state.stack import Stack
from asyncexec.ops.state.tensor_array_state import TensorArray
from asyncexec.ops.state.variable_state import Variable, locked
from tests.on_threads import at_once
from tests.running import import_all_names

THREADS = 4
SIZE = 400_000  # numpy lets others run meanwhile


@pytest.fixture(scope="module", autouse=True)
def op_modules() -> None:
    """Import what is used here: a test that runs in a loop must not read files."""
    import_all_names()


def test_gradients_are_all_added() -> None:
    array = TensorArray("a", float64, 1, TensorShape([SIZE])).gradient("g")
    start, ones = Barrier(THREADS), np.ones(SIZE)

    def add() -> None:
        start.wait()
        for _ in range(10):
            array.write(0, ones)

    threads = [Thread(target=add) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(array.read_element(0), np.full(SIZE, 10.0 * THREADS))


async def test_gradients_of_one_step_are_all_added() -> None:
    with ax.Graph() as graph:
        fed = [ax.placeholder(ax.float64, [None]) for _ in range(2 * THREADS)]
        array = ax.create_op("TensorArrayV3", [np.int32(1)], {"dtype": ax.float64})
        handle, flow = ax.create_op("TensorArrayGradV3", list(array), {"source": "g"})
        written = [ax.create_op("TensorArrayWriteV3", [handle, np.int32(0), value, flow]) for value in fed]
        total = ax.create_op("TensorArrayReadV3", [handle, np.int32(0), ax.add_n(written)], {"dtype": ax.float64})
    async with ax.Session(graph, ax.SessionConfig(num_worker_threads=THREADS)) as session:
        value = await session.run(total, {each: np.ones(SIZE) for each in fed})
    np.testing.assert_array_equal(value, np.full(SIZE, 2.0 * THREADS))


def test_an_assignment_during_an_update_is_not_lost() -> None:
    variable = Variable("v", float64, TensorShape([]))
    variable.assign(np.float64(1))
    has_begun, is_assigned = Event(), Event()

    def slow(old: Any) -> Any:
        has_begun.set()
        is_assigned.wait(0.1)  # which it is not, where it waits for this
        return old + 1

    def assign() -> None:
        variable.assign(np.float64(100))
        is_assigned.set()

    update = Thread(target=variable.update, args=(slow,))
    update.start()
    has_begun.wait()
    other = Thread(target=assign)
    other.start()
    update.join()
    other.join()
    assert variable.read() in (100, 101)  # by the order of the two


def kernel_of(op: str, **attrs: Any) -> Any:
    """A kernel of *op* as a session would have it."""
    op_def = op_registry.lookup(op).op_def
    complete = op_def.complete_attrs(attrs)
    return kernel_registry.lookup(op, "CPU", complete).factory(OpKernelConstruction("node", op_def, complete))


def variable_of(value: Any) -> Variable:
    made = Variable("v", float64, TensorShape(None))
    made.assign(value)
    return made


@pytest.mark.parametrize(
    "assign",
    [kernel_of("AssignVariableOp", dtype=float64, validate_shape=True), kernel_of("Assign", T=float64)],
    ids=["AssignVariableOp", "Assign"],
)
def test_a_shape_that_was_found_right_stays_so(monkeypatch: pytest.MonkeyPatch, assign: Any) -> None:
    variable, is_checked, is_assigned = variable_of(np.zeros(2)), Event(), Event()
    require_shape = Variable.require_shape

    def check(self: Variable, shape: tuple[int, ...]) -> None:
        require_shape(self, shape)
        is_checked.set()
        is_assigned.wait(0.1)  # which it is not, where it waits for this

    def assign_another_shape() -> None:
        is_checked.wait()
        variable.assign(np.ones(3))
        is_assigned.set()

    monkeypatch.setattr(Variable, "require_shape", check)
    at_once(partial(assign, variable, np.zeros(2)), assign_another_shape)
    np.testing.assert_array_equal(variable.read(), np.ones(3))


def test_a_value_that_is_forgotten_during_an_update_stays_so() -> None:
    variable, has_begun, is_gone = variable_of(np.float64(1)), Event(), Event()

    def slow(old: Any) -> Any:
        has_begun.set()
        is_gone.wait(0.1)
        return old + 1

    def destroy() -> bool:
        has_begun.wait()
        was_there = variable.destroy()
        is_gone.set()
        return was_there

    assert at_once(partial(variable.update, slow), destroy)[1]
    assert not variable.is_initialized


def test_a_value_is_forgotten_once() -> None:
    for _ in range(100):
        variable = variable_of(np.float64(1))
        assert sorted(at_once(variable.destroy, variable.destroy)) == [False, True]


def test_a_training_step_has_its_variables_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are as they would be, had the second step begun when the first had ended."""
    adam = kernel_of("ResourceApplyAdam", T=float64)
    rates = [np.float64(rate) for rate in (0.9, 0.99, 0.1, 0.9, 0.99, 1e-3)]
    has_begun, is_over = Event(), Event()
    apart, together = [[variable_of(np.zeros(3)) for _ in range(3)] for _ in range(2)]
    first, second = (partial(adam, *together, *rates, np.full(3, gradient)) for gradient in (1.0, -3.0))
    for gradient in (1.0, -3.0):
        adam(*apart, *rates, np.full(3, gradient))
    freeze = variable_state.freeze

    def slow(value: Any) -> Any:
        if not has_begun.is_set():
            has_begun.set()
            is_over.wait(0.1)  # which it is not, where it waits for this
        return freeze(value)

    def follow() -> None:
        assert has_begun.wait(60)
        second()
        is_over.set()

    monkeypatch.setattr(variable_state, "freeze", slow)
    at_once(first, follow)
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_array_equal(one.read(), other.read())


def test_variables_that_two_steps_name_in_different_orders() -> None:
    momentum = kernel_of("ResourceApplyMomentum", T=float64)
    one, other = variable_of(np.zeros(3)), variable_of(np.zeros(3))

    def train(*variables: Variable) -> None:
        for _ in range(500):
            momentum(*variables, np.float64(0), np.ones(3), np.float64(0))

    at_once(partial(train, one, other), partial(train, other, one))
    assert one.is_initialized
    assert other.is_initialized


def test_a_stack_is_never_too_full_and_gives_each_element_once() -> None:
    stack, size = Stack("s", int64, 1_000), 1_000

    def push() -> int:
        return sum(succeeds(partial(stack.push, i)) for i in range(size))

    def pop() -> int:
        return sum(succeeds(stack.pop) for _ in range(size))

    assert sum(at_once(*[push] * THREADS)) == size
    assert len(stack.elements) == size
    assert sum(at_once(*[pop] * THREADS)) == size
    pushed, *popped = at_once(push, pop, pop)
    assert pushed - sum(popped) == len(stack.elements)


def succeeds(function: Any) -> bool:
    """Whether *function*, of a stack, finds room, or an element."""
    try:
        function()
    except ax.errors.InvalidArgumentError:
        return False
    return True


def test_a_table_is_never_seen_half_filled() -> None:
    table, few = MutableHashTable(int64, int64), np.arange(10)
    is_cleared, is_seen = Event(), Event()

    class Entries(dict[Any, Any]):
        def clear(self) -> None:
            super().clear()
            is_cleared.set()
            is_seen.wait(0.1)  # which it is not, where it waits for this

    def look() -> int:
        is_cleared.wait()
        size = table.size()
        is_seen.set()
        return size

    table._entries = Entries({1: 1})
    assert at_once(partial(table.load, few, few), look)[1] == 10


def test_print_tells_of_so_many_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    show = kernel_of("Print", T=float64, U=(float64,), message=b"seen ", first_n=5_000)

    def use() -> None:
        for _ in range(2_500):
            show(np.float64(1), np.float64(2))

    at_once(*[use] * THREADS)
    assert capsys.readouterr().err.count("seen ") == 5_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is not copied")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_waits_for_an_update() -> None:
    """Nobody is there to end it in the child, which would wait for it for ever."""
    variable = Variable("v", ax.float32, TensorShape(None))
    variable.assign(np.zeros(3, np.float32))
    begun, may_end = Event(), Event()

    def update() -> None:
        with locked([variable]):
            begun.set()
            may_end.wait()
            variable.assign(np.ones(3, np.float32))

    thread = Thread(target=update)
    thread.start()
    begun.wait()
    os.register_at_fork(before=may_end.set)  # it comes before what was registered before it
    child = os.fork()
    if not child:
        os._exit(0 if variable.lock.acquire(timeout=5) and variable.value.all() else 1)
    _, status = os.waitpid(child, 0)
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert variable.lock.acquire(blocking=False)
    variable.lock.release()
