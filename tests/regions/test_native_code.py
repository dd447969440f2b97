"""What native code does beside the Python code: the same, to the bit, and in slices."""

from __future__ import annotations

import asyncio
import gc
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from types import FunctionType
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.plans import native_calls
from asyncexec.executor.plans.native_calls import COMPILER, NativeCounter
from asyncexec.framework.errors import DeadlineExceededError, InvalidArgumentError
from asyncexec.regions import native_code
from asyncexec.regions.native_emitter import nan_of
from tests.regions.native import hooks, native_at_once, never_native, num_native, plan_of
from tests.regions.programs import COMPILED, compiled
from tests.session.turns import turns_during

_FLOATS: Final = (
    "0.0 -0.0 1.0 -1.0 0.5 -0.5 1.5 2.5 -2.5 3.0 7.0 1e-45 -1e-45 5e-324 1.17549435e-38 3.4e38 -3.4e38 1e300 "
    "inf -inf nan 2147483648.0 -2147483648.0 2147483520.0 2147483647.5 -2147483648.5 -2147483649.0 "
    "9.223372036854775807e18 -9.223372036854775808e18 16777217.0"
)
_INTEGERS: Final = (0, 1, -1, 2, -2, 3, -3, 7, -7, 46341, 2**24 + 1, 2**31 - 1, -(2**31))
_LONG: Final = (2**53 + 1, -(2**53 + 1), 2**60 + 2**36 + 129, 2**62 + 2**38 + 1, 2**63 - 513, 2**63 - 1, -(2**63))


def _with_bits(kind: Any, *patterns: int) -> list[Any]:
    return [np.array(pattern, f"u{np.dtype(kind).itemsize}").view(kind)[()] for pattern in patterns]


def _values() -> dict[ax.DType, list[Any]]:
    """Special values of each type; NaNs with payloads, quiet and not, and of either sign."""
    with np.errstate(all="ignore"):
        singles = [np.float32(text) for text in _FLOATS.split()]
    nans = _with_bits(np.float32, 0x7FC00001, 0xFFC00123, 0x7F800001, 0xFFA00000, 0xFFC00000)
    long_nans = _with_bits(np.float64, 0x7FF8000000000001, 0xFFF8000000000123, 0x7FF0000000000001, 0xFFF8 << 48)
    return {
        ax.float32: [*singles, *nans],
        ax.float64: [*[np.float64(text) for text in _FLOATS.split()], *long_nans],
        ax.int32: [np.int32(value) for value in _INTEGERS],
        ax.int64: [np.int64(value) for value in (*_INTEGERS, *_LONG)],
        ax.bool: [np.bool_(False), np.bool_(True)],
    }


VALUES: Final = _values()
_ARITHMETIC: Final = "Add AddV2 Sub Mul SquaredDifference Maximum Minimum Div FloorDiv TruncateDiv"
_COMPARISONS: Final = "Less LessEqual Greater GreaterEqual Equal NotEqual"
_OF_INTEGERS: Final = "FloorMod Mod TruncateMod BitwiseAnd BitwiseOr BitwiseXor"
_OF_FLOATS: Final = "Reciprocal Inv Sqrt Floor Ceil Rint Round IsNan IsInf IsFinite"
_FLOAT: Final = (ax.float32, ax.float64)
_INTEGER: Final = (ax.int32, ax.int64)
OPS: Final = [
    *[(op, (kind, kind)) for op in f"{_ARITHMETIC} {_COMPARISONS}".split() for kind in (*_FLOAT, *_INTEGER)],
    *[("RealDiv", (kind, kind)) for kind in _FLOAT],
    *[
        (op, (kind, kind))
        for op in "FloorMod Mod TruncateMod BitwiseAnd BitwiseOr BitwiseXor".split()
        for kind in _INTEGER
    ],
    *[(op, (ax.bool, ax.bool)) for op in ("LogicalAnd", "LogicalOr", "Equal", "NotEqual")],
    *[(op, (kind,)) for op in ("Neg", "Abs", "Square") for kind in (*_FLOAT, *_INTEGER)],
    *[
        (op, (kind,))
        for op in "Reciprocal Inv Sqrt Floor Ceil Rint Round IsNan IsInf IsFinite".split()
        for kind in _FLOAT
    ],
    ("LogicalNot", (ax.bool,)),
    *[("Invert", (kind,)) for kind in _INTEGER],
    *[(op, (ax.bool, kind, kind)) for op in ("Select", "SelectV2") for kind in VALUES],
    *[(op, (kind,)) for op in ("Relu", "Relu6") for kind in (*_FLOAT, *_INTEGER)],
    *[("Rsqrt", (kind,)) for kind in _FLOAT],
    *[("ClipByValue", (kind, kind, kind)) for kind in (*_FLOAT, *_INTEGER)],
    *[("AddN", (kind, kind, kind)) for kind in (*_FLOAT, *_INTEGER)],
    *[(f"Cast to {to.name}", (kind,)) for kind, to in itertools.permutations(VALUES, 2)],
]


def make(op: str, inputs: list[ax.Tensor]) -> ax.Tensor:
    if op.startswith("Cast"):
        return ax.cast(inputs[0], getattr(ax, op.split()[-1]))
    return ax.create_op(op, [inputs] if op == "AddN" else inputs)


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("shape", [[], None], ids=["scalars", "unknown"])
@pytest.mark.parametrize(("op", "kinds"), OPS, ids=lambda value: value if isinstance(value, str) else value[-1].name)
async def test_bits_are_those_of_the_kernel(op: str, kinds: Sequence[ax.DType], shape: list[int] | None) -> None:
    """Each special value with each other; nearly all that are no NaN are done natively."""
    with native_at_once(), ax.Graph() as graph:
        inputs = [ax.placeholder(kind, shape) for kind in kinds]
        result = make(op, inputs)
        async with ax.Session(graph, COMPILED) as session:
            plan = compiled(session, result, inputs)
            assert plan is not None
            (counter,) = hooks(plan)
            assert isinstance(counter, NativeCounter)
            values = list(itertools.product(*[VALUES[kind] for kind in kinds]))[:: 1 if len(kinds) < 3 else 13]
            counter(*values[0])
            (native,) = hooks(plan)
            assert isinstance(native, FunctionType)
            counter.part.replace(None)  # so that the plan is the Python code alone
            num_native, num_numbers = 0, 0
            for each in values:
                num_numbers += not any(value != value for value in each)
                got = native(*each)
                if got is None:
                    continue
                num_native += 1
                with np.errstate(all="ignore"):
                    (expected,) = plan.function(*each)
                assert (type(got), got.tobytes()) == (type(expected), expected.tobytes()), each
    assert num_native > 0.5 * num_numbers


@asynccontextmanager
async def session_of(graph: ax.Graph) -> AsyncIterator[ax.Session]:
    async with ax.Session(graph, COMPILED) as session:
        yield session


def counting(limit: Any, body: Callable[[ax.Tensor], ax.Tensor] = lambda i: i + 1) -> ax.Tensor:
    (last,) = ax.while_loop(lambda i: i < limit, lambda i: [body(i)], [ax.constant(0)])
    return last


async def test_no_multiplication_is_fused_with_an_addition() -> None:
    with native_at_once(), ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        y = x * x + ax.placeholder(ax.float32, [], name="y")
        factor = np.float32(1) + np.float32(2**-12)
        async with session_of(graph) as session:
            for _ in range(2):
                got = await session.run(y, {x: factor, "y:0": -(factor * factor)})
            assert num_native(plan_of(session)) == 1
    assert got == 0  # with one rounding it would be 2**-24


async def test_a_nan_that_llvm_could_compute_is_that_of_the_processor() -> None:
    with native_at_once(), ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [])
        zero, infinity = ax.cast(x - x, ax.float32), ax.reciprocal(ax.cast(x * 0, ax.float64))
        fetches = [zero / zero, infinity - infinity]
        async with session_of(graph) as session:
            runs = [await session.run(fetches, {x: 3}) for _ in range(3)]
            assert num_native(plan_of(session)) == 1
    assert {value.tobytes() for got in runs for value in got[:1]} == {nan_of(np.float32).tobytes()}
    assert {value.tobytes() for got in runs for value in got[1:]} == {nan_of(np.float64).tobytes()}


def _nested(x: Any, y: Any) -> ax.Tensor:
    def body(i: ax.Tensor, total: ax.Tensor) -> list[ax.Tensor]:
        _, inner = ax.while_loop(
            lambda j, _: j < 50,
            lambda j, t: [j + 1, t + ax.floordiv(100, y - j * i, name="quotient")],
            [ax.constant(0), total],
        )
        return [i + 1, inner]

    return ax.while_loop(lambda i, _: i < x, body, [ax.constant(0), ax.constant(0)])[1]


@pytest.mark.parametrize("fuel", [native_code.FUEL, 300, 7])
async def test_errors_name_node_and_rounds_and_the_values_are_the_same(fuel: int, monkeypatch: Any) -> None:
    """With little fuel, loops are left within rounds, and between them."""
    monkeypatch.setattr(native_code, "FUEL", fuel)
    with ax.Graph() as graph:
        x, y = (ax.placeholder(ax.int32, [], name=name) for name in "xy")
        last = _nested(x, y)
    feeds = [(100, 0), (20, 77), (200, 99 * 49 + 1), (200, 97 * 47), (0, 1)]
    outcomes = []
    for mode in (never_native, native_at_once):
        found: list[Any] = []
        with mode():
            async with session_of(graph) as session:
                for x_value, y_value in feeds * 2:
                    try:
                        found.append(await session.run(last, {x: x_value, y: y_value}))
                    except InvalidArgumentError as error:
                        found.append((str(error), error.node))
                assert num_native(plan_of(session)) == (2 if mode is native_at_once else 0)
        outcomes.append(found)
    assert outcomes[0] == outcomes[1]
    assert [isinstance(each, tuple) for each in outcomes[0][:5]] == [True, True, False, True, False]
    assert "while 97, " in outcomes[0][3][0]


@pytest.fixture
def quickly_hot(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets a part be compiled after little work, on the thread."""
    monkeypatch.setattr(native_calls, "HOT_WORK", 2_000)
    yield
    COMPILER.join()


@pytest.mark.allow_blocking
async def test_what_has_run_often_becomes_native_behind_the_runs(quickly_hot: None) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        chain, y = x, ax.placeholder(ax.float32, [])
        for _ in range(100):
            chain = chain * y + 1.0
        loop = counting(ax.placeholder(ax.int32, [], name="n"))
    async with session_of(graph) as session:
        expected = await session.run(chain, {x: 0.5, y: 0.25})
        for _ in range(20):
            assert await session.run(chain, {x: 0.5, y: 0.25}) == expected
        assert await session.run(loop, {"n:0": 5_000}) == 5_000
        COMPILER.join()
        plans = [prepared.tier.compiled for prepared in session._cache.values()]
        assert [num_native(plan) for plan in plans] == [1, 1]  # type: ignore[arg-type]
        assert await session.run(chain, {x: 0.5, y: 0.25}) == expected
        assert await session.run(loop, {"n:0": 300_000}) == 300_000


async def test_a_loop_becomes_native_while_it_runs() -> None:
    with native_at_once(), ax.Graph() as graph:
        last = counting(ax.placeholder(ax.int32, [], name="n"))
        async with session_of(graph) as session:
            assert await session.run(last, {"n:0": 10_000_000}) == 10_000_000  # in Python it would be seconds
            assert num_native(plan_of(session)) == 1


@pytest.mark.parametrize("is_nested", [False, True])
async def test_a_native_loop_is_one_call_unless_it_takes_long(is_nested: bool) -> None:
    with native_at_once(), ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [], name="n")
        last = counting(n, lambda i: counting(i + 1) if is_nested else i + 1)
        async with session_of(graph) as session:
            for _ in range(3):
                assert await session.run(last, {n: 500}) == 500
            (prepared,) = session._cache.values()
            plan = plan_of(session)
            assert prepared.tier.plain is plan
            assert not plan.is_plain
            for _ in range(20):  # as often as it is tried, and more
                assert await session.run(last, {n: 20_000 if is_nested else 10_000_000}) is not None
            assert prepared.tier.plain is None
            assert await session.run(last, {n: 500}) == 500
            assert plan.is_quick


async def test_native_loop_gives_the_event_loop_its_turns() -> None:
    with native_at_once(), ax.Graph() as graph:
        last = counting(ax.placeholder(ax.int32, [], name="n"))
        async with session_of(graph) as session:
            await session.run(last, {"n:0": 10})
            turns, reached = await turns_during(session.run(last, {"n:0": 100_000_000}))
    assert (reached, turns > 5) == (100_000_000, True)


@pytest.mark.parametrize("is_nested", [False, True])
async def test_endless_native_loop_is_cancelled_and_keeps_its_deadline(is_nested: bool) -> None:
    """In a nested loop, the fuel runs out within a round that never ends."""
    with native_at_once(), ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [])

        def body(i: ax.Tensor) -> ax.Tensor:
            (inner,) = ax.while_loop(lambda j: j < n, lambda j: [ax.minimum(j + 1, 100)], [ax.constant(0)])
            return i + ax.minimum(inner, 1)

        last = counting(n, body if is_nested else lambda i: ax.minimum(i + 1, 100))
        async with session_of(graph) as session:
            for _ in range(2):
                assert await session.run(last, {n: 20}) == 20
            assert num_native(plan_of(session)) == 1 + is_nested
            with pytest.raises(DeadlineExceededError):
                await session.run(last, {n: 1000}, options=ax.RunOptions(timeout=0.02))
            task = asyncio.ensure_future(session.run(last, {n: 1000}))
            for _ in range(5):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert session.statistics().running_steps == 0
            assert await session.run(last, {n: 20}) == 20
            task = asyncio.ensure_future(session.run(last, {n: 1000}))
            await asyncio.sleep(0)
            await session.close()
            with pytest.raises(ax.errors.CancelledError, match="closed"):
                await task


async def test_what_native_code_does_not_know_is_done_by_the_kernels() -> None:
    """Arrays where scalars were met, a NaN that is not the common one, and where scalars were never met."""
    with native_at_once(), ax.Graph() as graph:
        x, y = (ax.placeholder(ax.float32, None, name=name) for name in "xy")
        z = x
        for _ in range(200):
            z = z + y
        async with session_of(graph) as session:
            for _ in range(3):
                assert await session.run(z, {x: 1.0, y: 2.0}) == 401.0
            assert num_native(plan_of(session)) == 1
            for _ in range(30):
                assert (await session.run(z, {x: [1.0, 2.0], y: 2.0})).tolist() == [401.0, 402.0]
            (nan,) = _with_bits(np.float32, 0x7FC00123)
            assert (await session.run(z, {x: nan, y: np.float32(1)})).tobytes() == nan.tobytes()
            assert await session.run(z, {x: 1.0, y: 2.0}) == 401.0
        async with session_of(graph) as session:
            for _ in range(5):
                assert (await session.run(z, {x: [1.0, 2.0], y: 2.0})).tolist() == [401.0, 402.0]
            assert hooks(plan_of(session)) == [None]
            assert await session.run(z, {x: 1.0, y: 2.0}) == 401.0


async def test_a_signature_that_is_native_as_a_whole_is_one_call() -> None:
    """Its Python code would go on in slices, for nobody knows the shapes."""
    with native_at_once(), ax.Graph() as graph:
        x = ax.placeholder(ax.float32, None, name="x")
        z = x
        for _ in range(300):
            z = z + 1.0
        async with session_of(graph) as session:
            for _ in range(4):
                assert await session.run(z, {x: 1.0}) == 301.0
            (prepared,) = session._cache.values()
            plan = plan_of(session)
            assert not plan.is_plain
            assert prepared.tier.plain is plan
            assert (await session.run(z, {x: [1.0]})).tolist() == [301.0]
            assert prepared.tier.plain is None or prepared.tier.plain is plan
            call = session.make_callable(z, [x])
            for value in (1.0, [1.0], 1.0):
                assert np.all(await call(value) == 301.0)
            async with session.stream(z) as stream:
                await stream.send({x: 1.0})
                assert await anext(aiter(stream)) == 301.0
            assert session.statistics().failed_steps == 0


@pytest.mark.one_of("loop")
@pytest.mark.allow_blocking
async def test_code_is_freed_with_its_sessions() -> None:
    gc.collect()
    COMPILER.free_soon()
    COMPILER.join()
    with native_at_once(), ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        y = x * x + x
        alive = COMPILER.num_compiled - COMPILER.num_freed
        for number in range(200):
            async with session_of(graph) as session:
                for _ in range(3):
                    assert await session.run(y, {x: number}) == number * number + number
                assert num_native(plan_of(session)) == 1
            del session
    gc.collect()
    COMPILER.free_soon()
    COMPILER.join()
    assert COMPILER.num_compiled - COMPILER.num_freed == alive


_WITHOUT: Final = """
import asyncio, sys
sys.modules["llvmlite"] = None
import asyncexec as ax

async def main():
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [])
        (last,) = ax.while_loop(lambda i: i < n, lambda i: [i + 1], [ax.constant(0)])
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED")) as session:
        for _ in range(3):
            assert await session.run(last, {n: 200_000}) == 200_000

asyncio.run(main())
print(*[name for name in sys.modules if "native" in name and name.startswith("asyncexec")])
"""


def test_without_the_extra_nothing_of_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"asyncexec.regions.native_parts", "asyncexec.regions.native_emitter"}
    assert not done.stderr


async def test_an_integer_decides_between_sides() -> None:
    """As the index of a switch_case it is the second side, unless it is 0."""
    with native_at_once(), ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [])
        y = ax.switch_case(x * 1, [lambda: x - 1, lambda: x * x])
        z = ax.switch_case(x * 1, [lambda: x - 1, lambda: x * x, lambda: -x])
        async with session_of(graph) as session:
            for _ in range(2):
                for value, expected in ((0, (-1, -1)), (1, (1, 1)), (2, (4, -2)), (5, (25, -5)), (-3, (9, 3))):
                    assert await session.run((y, z), {x: value}) == expected
            assert num_native(plan_of(session))
