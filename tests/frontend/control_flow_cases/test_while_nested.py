"""Loops in loops, conds in loops, loops in conds, and tensors that are used where they cannot be had.

After ``ControlFlowTest`` and ``ControlFlowContextCheckTest`` in ``control_flow_ops_py_test.py``; expected values are
that file's, unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import asyncexec as ax
from tests.frontend.control_flow_cases.running import value_of
from tests.running import import_all_names

TWO_CPUS = {"device_count": {"CPU": 2}}


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


@pytest.mark.parametrize("device", [None, "/cpu:1"])
async def test_a_sum_in_each_iteration(device: str | None) -> None:
    """With a second CPU for TensorFlow's GPU."""

    def build() -> Any:
        n = ax.constant(0)

        def total(s: Any) -> Any:
            def body(i: Any, s: Any) -> Any:
                with ax.device(device):
                    return i + 1, i + s

            return ax.while_loop(lambda i, s: i < 10, body, [n, s])[1]

        return ax.while_loop(lambda x: x < 200, lambda x: x + total(n), n)

    assert await value_of(build, **TWO_CPUS) == 225


@pytest.mark.parametrize("device", [None, "/cpu:1"])
async def test_what_goes_in_and_what_comes_out_on_another_device(device: str | None) -> None:
    """With a second CPU for TensorFlow's GPU."""
    seen: list[float] = []

    @ax.op(outputs=[ax.float32])
    def shown(x: Any) -> Any:
        seen.append(float(x))
        return x

    def build() -> Any:
        def body(x: Any) -> Any:
            x = ax.while_loop(lambda s: s < 20.0, lambda s: s + s, shown(x), parallel_iterations=1)
            with ax.device(device):
                return ax.square(x)

        return ax.while_loop(lambda x: x < 3000.0, body, ax.constant(2.0), parallel_iterations=1)

    assert await value_of(build, **TWO_CPUS) == 1048576.0
    assert seen == [2.0, 1024.0]


async def test_a_variable_squared_in_three_levels() -> None:
    def build() -> Any:
        var = ax.Variable(ax.constant(3.0))

        def inner(y: Any) -> Any:
            return ax.while_loop(lambda j, z: j < 3, lambda j, z: (j + 1, z + ax.square(var)), [0, y])[1]

        def body(i: Any, y: Any) -> Any:
            return i + 1, y + ax.cond(ax.constant(True), lambda: inner(y), lambda: 0.0)

        return ax.while_loop(lambda i, y: i < 2, body, [0, ax.constant(0.0)])[1]

    assert await value_of(build) == 81.0


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_loop_in_the_branch_taken(is_first: bool) -> None:
    def build() -> Any:
        n = ax.constant(0, name="n")

        def loop() -> Any:
            return ax.while_loop(lambda x: x < 10, lambda x: x + 1, n)

        if is_first:
            return ax.cond(ax.less(0, 1), loop, lambda: n)
        return ax.cond(ax.less(1, 0), lambda: n + 1, loop)

    assert await value_of(build) == 10


@pytest.mark.parametrize(("pred", "expected"), [(True, 10.0), (False, 0.0)])
@pytest.mark.parametrize("device", [None, "/cpu:1"])
async def test_a_loop_in_a_branch_with_its_body_on_another_device(
    pred: bool, expected: float, device: str | None
) -> None:
    def build() -> Any:
        n = ax.constant(0.0)

        def body(x: Any) -> Any:
            with ax.device(device):
                return x + 1.0

        return ax.cond(
            ax.placeholder(ax.bool, [], name="p"),
            lambda: ax.while_loop(lambda x: x < 10.0, body, n),
            lambda: n * 2.0,
        )

    assert await value_of(build, {"p:0": pred}, **TWO_CPUS) == expected


BRANCHES: dict[str, Callable[[Any, Any], Any]] = {
    "of_the_loop": lambda x, n: ax.cond(ax.constant(True), lambda: x + 1, lambda: x - 1),
    "of_outside": lambda x, n: ax.cond(ax.constant(True), lambda: x + 1, lambda: n),
    "computed": lambda x, n: ax.cond(ax.less(0, 1), lambda: x + 1, lambda: x - 1),
}


@pytest.mark.parametrize("name", BRANCHES)
async def test_a_cond_in_the_body(name: str) -> None:
    def build() -> Any:
        n = ax.constant(0, name="n")
        return ax.while_loop(lambda x: x < 10, lambda x: BRANCHES[name](x, n), n)

    assert await value_of(build) == 10


async def test_limits_from_the_body_around() -> None:
    """The product of the limits, two of which are the size of what is fed: 5 * 3 * 3 multiplications by one."""
    calls: list[float] = []

    @ax.op(outputs=[ax.float32])
    def times_one(x: Any) -> Any:
        calls.append(float(x))
        return x

    def build() -> Any:
        p = ax.placeholder(ax.int32, name="p")

        def outer(i: Any, x: Any) -> Any:
            limit = ax.size(p)

            def middle(i: Any, x: Any) -> Any:
                r = ax.while_loop(lambda *_: True, lambda i, x: (i + 1, times_one(x)), (0, x), maximum_iterations=limit)
                return i + 1, r[1]

            found = ax.while_loop(lambda *_: True, middle, (0, x), maximum_iterations=limit, name="mid")
            return i + 1, x + found[1]

        return ax.while_loop(lambda *_: True, outer, (0, ax.constant(1.0)), maximum_iterations=5, name="outer")[1]

    assert await value_of(build, {"p:0": [0, 0, 0]}) == 32.0
    assert len(calls) == 5 * 3 * 3


def tensor_of_a_loop() -> ax.Tensor:
    """A constant that was made in the body of a loop."""
    found: list[ax.Tensor] = []

    def body(i: Any) -> Any:
        found.append(ax.constant(1))
        return i + found[0]

    ax.while_loop(lambda i: i < 10, body, [0])
    return found[0]


def tensor_of_a_branch() -> ax.Tensor:
    """A constant that was made in a branch."""
    found: list[ax.Tensor] = []

    def branch() -> Any:
        found.append(ax.constant(1))
        return found[0]

    ax.cond(ax.less(1, 2), branch, lambda: ax.constant(0))
    return found[0]


def used_in_a_branch(tensor: ax.Tensor) -> Any:
    return ax.cond(ax.less(1, 2), lambda: ax.add(1, tensor), lambda: ax.constant(0))


def used_in_another_loop(tensor: ax.Tensor) -> Any:
    return ax.while_loop(lambda i: i < 10, lambda x: ax.add(1, tensor), [0])


def returned_from_another_loop(tensor: ax.Tensor) -> Any:
    return ax.while_loop(lambda i: i < 10, lambda i: tensor, [0])


USES: list[Callable[[ax.Tensor], Any]] = [
    lambda tensor: ax.add(1, tensor),
    used_in_a_branch,
    used_in_another_loop,
    returned_from_another_loop,
]


@pytest.mark.parametrize("use", USES, ids=["outside", "in_a_branch", "in_another_loop", "from_another_loop"])
def test_a_tensor_of_a_loop_is_refused_elsewhere(use: Callable[[ax.Tensor], Any]) -> None:
    with ax.Graph():
        tensor = tensor_of_a_loop()
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"'while/Const.*' is inside loop 'while'") as caught:
            use(tensor)
    assert isinstance(caught.value, ValueError)


def test_a_tensor_of_a_loop_is_refused_in_another_of_the_same_branch() -> None:
    def branch() -> Any:
        tensor = tensor_of_a_loop()
        return ax.while_loop(lambda i: i < 3, lambda i: i + tensor, [0])

    with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError, match="is inside loop 'cond/while'"):
        ax.cond(ax.less(1, 2), branch, lambda: [ax.constant(0)])


@pytest.mark.parametrize("use", USES[:1] + USES[2:], ids=["outside", "in_a_loop", "from_a_loop"])
def test_a_tensor_of_a_branch_is_refused_elsewhere(use: Callable[[ax.Tensor], Any]) -> None:
    """As under TensorFlow's functional control flow; its older one lets it pass and calls it dangerous."""
    with ax.Graph():
        tensor = tensor_of_a_branch()
        with pytest.raises(ax.errors.InvalidArgumentError, match="is inside true_fn of cond 'cond'"):
            use(tensor)


async def test_a_tensor_of_the_body_in_a_loop_in_there() -> None:
    """What comes out: 3, which is less than 5, in the first round, and so without end; the limit is ours."""

    def build() -> Any:
        def body(_: Any) -> Any:
            c = ax.constant(1)
            return ax.while_loop(lambda i: i < 3, lambda i: i + c, 0)

        return ax.while_loop(lambda i: i < 5, body, 0, maximum_iterations=4)

    assert await value_of(build) == 3


async def test_the_result_of_a_cond_in_a_loop_in_a_cond_in_a_loop() -> None:
    """The limit is ours, as above."""

    def build() -> Any:
        def body(_: Any) -> Any:
            one = ax.cond(ax.less(1, 2), lambda: ax.constant(1), lambda: ax.constant(0))
            return ax.cond(
                ax.less(1, 2),
                lambda: ax.while_loop(lambda i: i < 3, lambda i: i + one, 0),
                lambda: ax.constant(0),
            )

        return ax.while_loop(lambda i: i < 5, body, 0, maximum_iterations=4)

    assert await value_of(build) == 3
