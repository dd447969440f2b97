"""Variables, queues, random numbers, tables, strings, names and checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.builder import run, strings


def test_variable_lives_from_run_to_run() -> None:
    with ax.Graph() as graph:
        v = ax.Variable([1.0, 2.0], name="v")
        more, less, fresh = v.assign_add([1.0, 1.0]), v.assign_sub(v * 0.5), v.assign([7, 7])
        doubled = v + v
        init = ax.global_variables_initializer()
    assert (v.name, v.dtype, v.shape) == ("v", ax.float32, [2])
    with ax.BlockingSession(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError):
            session.run(v.read_value())
        session.run(init)
        session.run(more)
        assert session.run(v.read_value()).tolist() == [2, 3]
        session.run(less)
        assert session.run(doubled).tolist() == [2, 3]
        session.run(fresh)
        assert session.run([v.read_value(), v.is_initialized()])[0].tolist() == [7, 7]


def test_variable_stands_for_a_tensor() -> None:
    got = run(
        lambda x: [x + ax.Variable(2), 1 - ax.Variable(2), -ax.Variable([3])[0], ax.stack([ax.Variable(4), 5])],
        np.int32(1),
    )
    assert [np.asarray(value).tolist() for value in got] == [3, -1, -3, [4, 5]]


def test_variables_have_names_of_their_own_also_in_scopes() -> None:
    with ax.Graph() as graph:
        with ax.name_scope("layer"):
            first, second = ax.Variable(1, name="w"), ax.Variable(lambda: ax.constant(2), name="w")
            first.read_value()
        assert [v.name for v in ax.global_variables()] == ["layer/w", "layer/w_1"]
        assert first.handle.op.get_attr("shared_name") == b"layer/w"
        assert first.initializer.name == "layer/w/Assign"
        values = [first.read_value(), second.read_value()]
        init = ax.variables_initializer([first, second])
    with ax.BlockingSession(graph) as session:
        session.run(init)
        assert session.run(values) == [1, 2]


def test_what_a_variable_refuses() -> None:
    with ax.Graph():
        v = ax.Variable([1, 2])
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"\[3\].*\[2\]"):
            v.assign([1, 2, 3])
        with pytest.raises(ax.errors.InvalidTypeError):
            v.assign([1.5, 2])
        with pytest.raises(ax.errors.InvalidArgumentError, match="does not fit"):
            ax.Variable([1, 2], shape=[3])
        ax.Variable([1], shape=[None]).assign([1, 2, 3])
    with pytest.raises(ax.errors.FailedPreconditionError, match="no graph"):
        ax.Variable(1)


async def test_fifo_queue() -> None:
    with ax.Graph() as graph:
        queue = ax.FIFOQueue(10, [ax.int32, ax.string], [[], []])
        add, many = queue.enqueue([1, "one"]), queue.enqueue_many([[2, 3, 4], ["two", "three", "four"]])
        number, name = queue.dequeue()
        numbers, names = queue.dequeue_many(2)
        rest, size, close, closed = queue.dequeue_up_to(5), queue.size(), queue.close(), queue.is_closed()
    assert (number.shape, numbers.shape, rest[1].shape) == ([], [2], [None])
    async with ax.Session(graph) as session:
        await session.run(add)
        await session.run(many)
        assert await session.run(size) == 4
        assert await session.run([number, name]) == [1, b"one"]
        assert [value.tolist() for value in await session.run([numbers, names])] == [[2, 3], [b"two", b"three"]]
        await session.run(close)
        assert await session.run(closed)
        assert [value.tolist() for value in await session.run(rest)] == [[4], [b"four"]]
        with pytest.raises(ax.errors.OutOfRangeError):
            await session.run(number)


async def test_other_queues() -> None:
    with ax.Graph() as graph:
        padding = ax.PaddingFIFOQueue(10, ax.int32, [[None]])
        shuffle = ax.RandomShuffleQueue(10, 0, ax.float32, [[]], seed=1)
        priority = ax.PriorityQueue(10, ax.string, [[]])
        fill = [
            padding.enqueue(np.array([1], np.int32)),
            padding.enqueue(np.array([2, 3], np.int32)),
            shuffle.enqueue_many([[1.0, 2.0, 3.0]]),
            priority.enqueue_many([[3, 1], ["late", "soon"]]),
        ]
        fetches = [padding.dequeue_many(2), shuffle.dequeue_many(3), priority.dequeue()]
    async with ax.Session(graph) as session:
        for operation in fill:
            await session.run(operation)
        rows, floats, first = await session.run(fetches)
    assert sorted(rows.tolist()) == [[1, 0], [2, 3]]
    assert sorted(floats.tolist()) == [1, 2, 3]
    assert first == [1, b"soon"]


def test_what_a_queue_refuses() -> None:
    with ax.Graph():
        with pytest.raises(ax.errors.InvalidArgumentError, match="2 components, not 3"):
            ax.FIFOQueue(1, [ax.int32, ax.int32]).enqueue([1, 2, 3])
        with pytest.raises(ax.errors.InvalidArgumentError, match="1 components has 2 shapes"):
            ax.FIFOQueue(1, [ax.int32], [[], []])
        with pytest.raises(ax.errors.InvalidTypeError):
            ax.FIFOQueue(1, ax.int32).enqueue(1.5)


RANDOM: dict[str, Any] = {
    "uniform": lambda: ax.random_uniform([1000], 2, 4, seed=5),
    "integers": lambda: ax.random_uniform([1000], 2, 5, ax.int32, seed=5),
    "normal": lambda: ax.random_normal([1000], 3.0, 0.1, seed=5),
    "truncated": lambda: ax.truncated_normal([1000], 3.0, 0.1, ax.float64, seed=5),
    "stateless uniform": lambda: ax.stateless_random_uniform([1000], [1, 2], 2, 4),
    "stateless integers": lambda: ax.stateless_random_uniform([1000], [1, 2], 2, 5, ax.int64),
    "stateless normal": lambda: ax.stateless_random_normal([1000], [1, 2], 3.0, 0.1),
    "stateless truncated": lambda: ax.stateless_truncated_normal([1000], [1, 2], 3.0, 0.1),
}


@pytest.mark.parametrize("label", RANDOM)
def test_random_numbers(label: str) -> None:
    first, again = run(RANDOM[label]), run(RANDOM[label])
    second = run(RANDOM[label], times=2)
    assert np.array_equal(first, again)
    assert np.array_equal(first, second) == label.startswith("stateless")
    assert abs(float(first.mean()) - 3) < 0.2
    assert first.min() >= 2
    assert first.max() < 5


def test_random_order() -> None:
    assert sorted(run(lambda: ax.random_shuffle(ax.range(9), seed=1)).tolist()) == list(range(9))
    with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError, match="maxval"):
        ax.random_uniform([2], dtype=ax.int32)


def test_static_hash_table() -> None:
    def build(keys: ax.Tensor) -> list[ax.Tensor]:
        table = ax.StaticHashTable(["one", "two"], [1, 2], -1)
        return [table.lookup(keys), table.size()]

    values, size = run(build, strings("two", "three", "one"))
    assert values.tolist() == [2, -1, 1]
    assert size == 2


WORDS = strings(" One ", "two", "")
TEXTS: dict[str, tuple[Any, list[Any], Any]] = {
    "as_string": (ax.as_string, [np.array([1, -2])], [b"1", b"-2"]),
    "as_string precision": (lambda x: ax.as_string(x, precision=2), [np.array([1.5])], [b"1.50"]),
    "string_join": (lambda x: ax.string_join([x, "!"], "-"), [WORDS], [b" One -!", b"two-!", b"-!"]),
    "string_length": (ax.string_length, [WORDS], [5, 3, 0]),
    "string_lower": (ax.string_lower, [WORDS], [b" one ", b"two", b""]),
    "string_upper": (ax.string_upper, [WORDS], [b" ONE ", b"TWO", b""]),
    "string_strip": (ax.string_strip, [WORDS], [b"One", b"two", b""]),
    "string_to_number": (ax.string_to_number, [strings("1.5", "-2")], [1.5, -2.0]),
    "substr": (lambda x: ax.substr(x, 1, 2), [strings("abcd", "xyz")], [b"bc", b"yz"]),
    "regex_replace": (lambda x: ax.regex_replace(x, "(a)b", r"\1-"), [strings("abab")], [b"a-a-"]),
    "regex_full_match": (lambda x: ax.regex_full_match(x, "a+"), [strings("aa", "ab")], [True, False]),
    "string_to_hash_bucket_fast": (lambda x: ax.string_to_hash_bucket_fast(x, 1), [WORDS], [0, 0, 0]),
    "reduce_join": (lambda x: ax.reduce_join(x, separator=","), [WORDS], b" One ,two,"),
}


@pytest.mark.parametrize("label", TEXTS)
def test_text(label: str) -> None:
    build, inputs, expected = TEXTS[label]
    got = run(build, *inputs)
    assert (got.tolist() if isinstance(got, np.ndarray) else got) == expected


def test_splitting_text() -> None:
    indices, values, shape = run(lambda x: ax.string_split(x, ","), strings("a,b", "c"))
    assert (indices.tolist(), values.tolist(), shape.tolist()) == ([[0, 0], [0, 1], [1, 0]], [b"a", b"b", b"c"], [2, 2])


def test_printing(capfd: pytest.CaptureFixture[str]) -> None:
    run(lambda x: ax.print_("x is", x, output_stream="stdout"), np.array([1, 2]))
    assert capfd.readouterr().out == "x is [1 2]\n"


def test_checks() -> None:
    def checked(x: ax.Tensor) -> ax.Tensor:
        with ax.control_dependencies([ax.Assert(x < 3, ["too large:", x])]):
            return ax.identity(x)

    assert run(checked, np.int32(2)) == 2
    with pytest.raises(ax.errors.InvalidArgumentError, match=r"(?s)too large.*3"):
        run(checked, np.int32(3))
    assert run(lambda x: ax.check_numerics(x, "bad"), np.float32(1)) == 1
    with pytest.raises(ax.errors.InvalidArgumentError, match="bad"):
        run(lambda x: ax.check_numerics(x, "bad"), np.float32(np.nan))


def test_groups_wait_for_all() -> None:
    with ax.Graph():
        v, w = ax.Variable(1), ax.Variable(2)
        done = ax.group(v.assign(3), [w.assign(4), v.read_value()], name="done")
        assert done.name == "done"
        assert [node.op for node in done.control_inputs] == ["AssignVariableOp", "AssignVariableOp", "ReadVariableOp"]
        assert ax.no_op().op == ax.group().op == "NoOp"


@pytest.mark.parametrize(
    "build",
    [
        lambda x, name: ax.relu(x, name=name),
        lambda x, name: ax.gelu(x, name=name),
        lambda x, name: ax.softmax(x, 0, name=name),
        lambda x, name: ax.layer_norm(x, name=name),
        lambda x, name: ax.swish(x, name=name),
        lambda x, name: ax.reduce_std(x, name=name),
        lambda x, name: ax.reduce_logsumexp(x, name=name),
        lambda x, name: ax.boolean_mask(x, [True, False], name=name),
        lambda x, name: ax.random_normal([2], name=name),
        lambda x, name: ax.eye(2, name=name),
        lambda x, name: ax.resize(ax.zeros([1, 2, 2, 1]), [1, 1], name=name),
        lambda x, name: ax.sparse_softmax_cross_entropy_with_logits([0, 1], x, name=name),
    ],
)
def test_the_result_bears_the_name_given(build: Any) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [2, 3])
        with ax.name_scope("outer"):
            first, second = build(x, "result"), build(x, "result")
        assert (first.name, second.name) == ("outer/result:0", "outer/result_1:0")
        assert graph["outer/result:0"] is first
