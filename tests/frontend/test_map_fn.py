"""``map_fn``, ``scan``, ``foldl``, ``foldr``: values as of plain Python, nests, objects, overlap of async ops.

After ``map_fn_test.py`` and ``functional_ops_test.py`` of ``tensorflow/python/kernel_tests/control_flow``:
testMap_Simple, testMapSparseTensor (left out), testMap_MultiInputSingleOutput, testMap_SingleInputMultiOutput,
testMapShape, testMapUnknownShape, testMapEmptyScalar, testMapEmptyTensor, testFoldl_Simple, testFoldl_MultiInput...,
testFoldr_Simple, testScan_Simple, testScan_Reverse, testScan_SingleInputMultiOutput, testScanFoldl_Nested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.builder import IN_THE_LOOP, run
from tests.running import import_all_names


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


class Pair(NamedTuple):
    first: Any
    second: Any


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(member) for member in value]
    return np.asarray(value).tolist()


NUMBERS = np.arange(1, 7, dtype=np.int32)
MATRIX = np.arange(6, dtype=np.int32).reshape(3, 2)
SQUARES: Callable[..., Any] = lambda v: ax.map_fn(lambda x: (x + 3) * 2, v)  # noqa: E731

VALUES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "map": (SQUARES, (NUMBERS,), [8, 10, 12, 14, 16, 18]),
    "map_of_one": (SQUARES, (NUMBERS[:1],), [8]),
    "map_of_none": (SQUARES, (NUMBERS[:0],), []),
    "map_rows": (lambda m: ax.map_fn(ax.reduce_sum, m), (MATRIX,), [1, 5, 9]),
    "map_to_rows": (lambda v: ax.map_fn(lambda x: [ax.stack([x, -x])], v), (NUMBERS[:2],), [[[1, -1], [2, -2]]]),
    "map_pairs": (lambda v: ax.map_fn(lambda p: p[0] * p[1], (v, v + 1)), (NUMBERS[:3],), [2, 6, 12]),
    "map_to_pairs": (lambda v: ax.map_fn(lambda x: Pair(x, -x), v), (NUMBERS[:2],), [[1, 2], [-1, -2]]),
    "map_named": (lambda v: ax.map_fn(lambda p: p.first - p.second, Pair(v, v)), (NUMBERS[:2],), [0, 0]),
    "map_dict": (lambda v: ax.map_fn(lambda d: d["a"] + d["b"], {"a": v, "b": v}), (NUMBERS[:2],), [2, 4]),
    "map_captures": (lambda v, k: ax.map_fn(lambda x: x * k, v), (NUMBERS[:2], 5), [5, 10]),
    "map_constant": (lambda v: ax.map_fn(lambda x: ax.constant(1.5), v), (NUMBERS[:2],), [1.5, 1.5]),
    "map_of_a_list": (lambda k: ax.map_fn(lambda x: x * k, [1, 2, 3]), (5,), [5, 10, 15]),
    "map_of_an_array": (lambda k: ax.map_fn(lambda x: x * k, np.array([1, 2], np.int32)), (5,), [5, 10]),
    "map_other_dtype": (lambda v: ax.map_fn(lambda x: x > 1, v, ax.bool), (NUMBERS[:2],), [False, True]),
    "map_signature": (
        lambda v: ax.map_fn(lambda x: (1, x), v, fn_output_signature=(ax.int64, ax.int32)),
        (NUMBERS[:2],),
        [[1, 1], [1, 2]],
    ),
    "map_in_map": (
        lambda v: ax.map_fn(lambda x: ax.map_fn(lambda y: x * y, v), v),
        (NUMBERS[:3],),
        [[1, 2, 3], [2, 4, 6], [3, 6, 9]],
    ),
    "cond_in_map": (
        lambda v: ax.map_fn(lambda x: ax.cond(x > 2, lambda: x * 10, lambda: -x), v),
        (NUMBERS[:4],),
        [-1, -2, 30, 40],
    ),
    "while_in_map": (
        lambda v: ax.map_fn(lambda x: ax.while_loop(lambda i: i < 10, lambda i: i + x, 0), v),
        (NUMBERS[:4],),
        [10, 10, 12, 12],
    ),
    "map_in_while": (
        lambda v: ax.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, ax.map_fn(lambda x: x * 2, a)), (0, v))[1],
        (NUMBERS[:2],),
        [8, 16],
    ),
    "foldl": (lambda v: ax.foldl(lambda a, x: (a + x) * 2, v), (NUMBERS,), 208),
    "foldl_from": (lambda v: ax.foldl(lambda a, x: (a + x) * 2, v, 10), (NUMBERS,), 880),
    "foldr": (lambda v: ax.foldr(lambda a, x: (a + x) * 2, v), (NUMBERS,), 450),
    "foldr_from": (lambda v: ax.foldr(lambda a, x: (a + x) * 2, v, 10), (NUMBERS,), 1282),
    "foldl_of_none": (lambda v: ax.foldl(lambda a, x: a + x, v, 10), (NUMBERS[:0],), 10),
    "foldl_rows": (lambda m: ax.foldl(lambda a, x: a + x, m), (MATRIX,), [6, 9]),
    "foldl_nests": (
        lambda v: ax.foldl(lambda a, p: (a[0] + p[0], a[1] - p[1]), (v, v * 2), (0, 0)),
        (NUMBERS[:3],),
        [6, -12],
    ),
    "scan": (lambda v: ax.scan(lambda a, x: a * x, v), (NUMBERS,), [1, 2, 6, 24, 120, 720]),
    "scan_from": (lambda v: ax.scan(lambda a, x: a * x, v, 2), (NUMBERS,), [2, 4, 12, 48, 240, 1440]),
    "scan_reverse": (lambda v: ax.scan(lambda a, x: a * x, v, reverse=True), (NUMBERS,), [720, 720, 360, 120, 30, 6]),
    "scan_nests": (
        lambda v: ax.scan(lambda a, x: (a[0] * x, -a[1] * x), v, (1, -1)),
        (NUMBERS,),
        [[1, 2, 6, 24, 120, 720], [1, -2, 6, -24, 120, -720]],
    ),
    "scan_fold": (
        lambda v: ax.scan(lambda a, x: a + ax.foldl(lambda b, y: b + y, v) * x, v, 0),
        (NUMBERS[:3],),
        [6, 18, 36],
    ),
    "fibonacci": (
        lambda v: ax.scan(lambda a, _: (a[1], a[0] + a[1]), v, (0, 1))[0],
        (NUMBERS,),
        [1, 1, 2, 3, 5, 8],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    build, inputs, expected = VALUES[name]
    assert plain(run(build, *inputs)) == expected


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("parallel_iterations", [1, 10, 32])
async def test_no_schedule_changes_the_result(parallel_iterations: int) -> None:
    @ax.op
    async def slowly(x: Any) -> np.int32:
        await asyncio.sleep(0)
        return np.int32(x * 2)

    with ax.Graph() as graph:
        v = ax.placeholder(ax.int32, [None])
        mapped = ax.map_fn(slowly, v, parallel_iterations=parallel_iterations)
        scanned = ax.scan(lambda a, x: a * 3 + slowly(x), mapped, 0, parallel_iterations=parallel_iterations)
    expected, a = [], 0
    for x in NUMBERS:
        a = a * 3 + int(x) * 4
        expected.append(a)
    for seed in [None, *range(21)]:
        async with ax.Session(graph, ax.SessionConfig(schedule_seed=seed)) as session:
            first, second = await session.run([mapped, scanned], {v: NUMBERS})
            assert first.tolist() == (NUMBERS * 2).tolist()
            assert second.tolist() == expected


@pytest.mark.virtual_clock
async def test_calls_overlap_up_to_the_limit_and_results_stay_in_order() -> None:
    under_way, most = 0, 0

    @ax.op
    async def fetch(url: str) -> object:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.010 if url.endswith("0") else 0.005)
        under_way -= 1
        return {"url": url}

    with ax.Graph() as graph:
        urls = ax.placeholder(ax.string, [None])
        pages = ax.map_fn(fetch, urls, parallel_iterations=32)
    assert pages.dtype is ax.object
    loop = asyncio.get_running_loop()
    async with ax.Session(graph, cost_model=IN_THE_LOOP) as session:
        begin = loop.time()
        found = await session.run(pages, {urls: [f"/{i}" for i in range(96)]})
        assert loop.time() - begin <= 0.041
    assert [page["url"] for page in found] == [f"/{i}" for i in range(96)]
    assert most == 32


def test_objects_as_elements() -> None:
    @ax.op
    def words(text: str) -> object:
        return text.split()

    @ax.op
    def count(found: Any) -> int:
        return len(found)

    with ax.Graph() as graph:
        texts = ax.placeholder(ax.string, [None])
        lists = ax.map_fn(words, texts)
        counts = ax.map_fn(count, lists)
        given = ax.placeholder(ax.object, None)
        of_given = ax.map_fn(count, given)
    with ax.BlockingSession(graph) as session:
        feeds = {texts: ["a b", "", "c d e"]}
        found, numbers = session.run([lists, counts], feeds)
        assert found.tolist() == [["a", "b"], [], ["c", "d", "e"]]
        assert numbers.tolist() == [2, 0, 3]
        objects = np.empty(2, object)
        objects[:] = [(1, 2), ()]
        assert session.run(of_given, {given: objects}).tolist() == [2, 0]


def test_shapes() -> None:
    with ax.Graph():
        known, unknown = ax.placeholder(ax.float32, [3, 2]), ax.placeholder(ax.float32, [None, 2])
        assert ax.map_fn(lambda row: row * 2, known).shape == [3, 2]
        assert ax.map_fn(lambda row: row * 2, unknown).shape == [None, 2]
        assert ax.scan(lambda a, row: a + row, known).shape == [3, 2]
        assert ax.foldl(lambda a, row: a + row, unknown).shape == [2]


def test_rows_of_different_lengths_do_not_stack() -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match="inconsistent shapes"):
        run(lambda v: ax.map_fn(lambda x: ax.range(x), v), NUMBERS)


def test_elems_of_different_lengths() -> None:
    with ax.Graph() as graph:
        a, b = ax.placeholder(ax.float32, [None]), ax.placeholder(ax.float32, [None])
        result = ax.map_fn(lambda p: p[0] + p[1], (a, b))
    with (
        ax.BlockingSession(graph) as session,
        pytest.raises(ax.errors.InvalidArgumentError, match="Max scatter index must be < array size"),
    ):
        session.run(result, {a: [1, 2], b: [1, 2, 3]})


ERRORS: dict[str, tuple[Callable[[ax.Tensor], Any], str]] = {
    "scalar": (lambda x: ax.map_fn(lambda v: v, x[0]), "is a scalar and has no elements"),
    "no_elems": (lambda x: ax.map_fn(lambda v: v, ()), "elems has no tensors"),
    "operation": (lambda x: ax.map_fn(lambda v: ax.no_op(), x), "'map': the result of fn is an operation"),
    "nothing": (lambda x: ax.map_fn(lambda v: None, x), "'map': fn gives no tensor"),
    "lengths": (lambda x: ax.map_fn(lambda v: v, (x, np.zeros(3))), "different numbers of elements"),
    "dtype": (lambda x: ax.map_fn(lambda v: v, x, ax.int32), "the result of fn: .* is of float32, not int32"),
    "signature": (lambda x: ax.map_fn(lambda v: v, x, [ax.float32]), "dtype is a list of 1, but the result of fn is"),
    "parallel": (lambda x: ax.map_fn(lambda v: v, x, parallel_iterations=0), "parallel_iterations is 1 or more"),
    "scan_dtype": (lambda x: ax.scan(lambda a, v: a > 0, x), "the value of scan is float32 at first, but bool"),
    "scan_nest": (lambda x: ax.scan(lambda a, v: (a, v), x), "the result of fn is a tuple of 2, but the initializer"),
    "fold_shape": (lambda x: ax.foldl(lambda a, v: x, x), r"has the shape \[\] at first, but \[2\]"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    build, message = ERRORS[name]
    with ax.Graph():
        x = ax.placeholder(ax.float32, [2], name="x")
        with pytest.raises(ax.errors.InvalidArgumentError, match=message) as caught:
            build(x)
    assert caught.value.user_line is not None
    assert "test_map_fn.py" in caught.value.user_line


async def test_nothing_is_an_object_like_others() -> None:
    with ax.Graph() as graph:
        values = ax.placeholder(ax.object, [None], name="values")
        y = ax.map_fn(lambda value: ax.identity(value), values)
    async with ax.Session(graph) as session:
        assert list(await session.run(y, {values: [1, [2, 3], None]})) == [1, [2, 3], None]
