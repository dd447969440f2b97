"""Runs of a model that a server serves: the same results, nests and errors as of a session of its graph."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service.grpc.codec import parameters_of
from asyncexec.service.models.files import ModelSource
from asyncexec.service.protocol_messages import message
from tests.client.servers import metadata, mixed, other_server, served
from tests.service.models import until
from tests.service.test_grpc_front import Gate

pytestmark = [pytest.mark.usefixtures("grpc_library"), pytest.mark.allow_blocking, pytest.mark.one_of("loop")]

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Both:
    one: Any
    other: Any


NESTS: list[Any] = [
    "total",
    "total:0",
    ["double", "total", "total"],
    ("next", ["loud", ("twice",)]),
    {"a": "double", 1: {"b": "next"}},
    Pair("total", ["loud"]),
    Both("double", {"n": "next"}),
    defaultdict(list, a="total"),
    [],
]


def named(nest: Any) -> Any:
    """*nest* with the names that a session of the graph takes."""
    if isinstance(nest, str):
        return nest if ":" in nest else f"{nest}:0"
    if isinstance(nest, dict):
        return {key: named(value) for key, value in nest.items()}
    if isinstance(nest, Pair):
        return Pair(*map(named, nest))
    if isinstance(nest, Both):
        return Both(named(nest.one), named(nest.other))
    return type(nest)(map(named, nest))


def same(found: Any, expected: Any) -> None:
    """Fails where the two are not the same nest of the same values."""
    if isinstance(expected, Both):
        same(vars(found), vars(expected))
        return
    assert isinstance(found, dict) if isinstance(expected, dict) else type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        same(list(found.values()), list(expected.values()))
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("python_scalars", [False, True])
async def test_results_are_those_of_a_session_of_the_graph(python_scalars: bool) -> None:
    graph = mixed()
    feeds = {"x": X, "text": "ü", "n": 5}
    config = ax.SessionConfig(python_scalars=python_scalars)
    async with (
        served({"m": graph}) as url,
        ax.connect(url, model="m", python_scalars=python_scalars) as remote,
        ax.Session(graph, config) as local,
    ):
        for nest in NESTS:
            expected = await local.run(named(nest), {f"{name}:0": value for name, value in feeds.items()})
            same(await remote.run(nest, feeds), expected)
        assert type(await remote.run(NESTS[-2], feeds)) is defaultdict
        options = ax.RunOptions(python_scalars=not python_scalars)
        assert type(await remote.run("total", feeds, options=options)) is (np.float32 if python_scalars else float)


async def test_feeds_are_converted_as_those_of_a_session() -> None:
    async with served({"m": mixed()}) as url, ax.connect(url, model="m") as session:
        rows: list[Any] = [X, X.tolist(), X.astype(np.float64), X.astype(">f4"), X.T.copy().T, list(X)]
        for given in rows:
            np.testing.assert_array_equal(await session.run("double", {"x": given}), X * 2)
        assert await session.run("next", {"x:0": X}) == 3  # what has a default need not be fed
        found = await session.run("double", {"x": X})
        found += 1  # it is the caller's
        large = np.ones((2**20, 3), np.float32)  # more than gRPC takes by default
        assert float((await session.run("double", {"x": large})).sum()) == 2 * 3 * 2**20
        assert await session.run("total", {"x": np.ones((4000, 3)).tolist()}) == 12000


async def test_metadata() -> None:
    async with served({"m": mixed()}) as url, ax.connect(url, model="m", version="1") as session:
        assert (session.model, session.version, session.url) == ("m", "1", url)
        assert list(session.inputs) == ["x", "n", "text"]
        x = session.inputs["x"]
        assert (x.name, x.dtype, x.shape.dims) == ("x", ax.float32, (None, 3))
        assert {name: info.dtype for name, info in session.outputs.items()} == {
            "double": ax.float32,
            "total": ax.float32,
            "next": ax.int64,
            "loud": ax.string,
            "twice": ax.string,
        }
        assert repr(session).startswith(f"<RemoteSession of 'm' at {url}: x, n, text -> double, ")


ERRORS: list[tuple[Any, Any, type[Exception], str]] = [
    ("q", {}, ax.errors.InvalidArgumentError, "model 'm' has no output 'q'\n  hint: its outputs are 'double', "),
    (["total", 3], {}, ax.errors.InvalidTypeError, r"fetches\[1\] is int 3, which cannot be fetched"),
    (
        "total",
        {"q": 1},
        ax.errors.InvalidArgumentError,
        "model 'm' has no input 'q'\n  hint: its inputs are 'x', ",
    ),
    ("total", {3: 1}, ax.errors.InvalidTypeError, "feed key 3 is no name"),
    ("total", [1], ax.errors.InvalidTypeError, r"feeds is list \[1\], not a mapping"),
    ("total", {"x": X, "x:0": X}, ax.errors.InvalidArgumentError, "input 'x' is fed more than once"),
    (
        "total",
        {"x": [1.0]},
        ax.errors.InvalidArgumentError,
        r"shape \[1\] for 'x', which has .* \[\?,3\]\n .*'m'",
    ),
    ("total", {"x": [["a"] * 3]}, ax.errors.InvalidTypeError, "cannot feed 'x': "),
    ("total", {"x": X, "n": 2**63}, ax.errors.InvalidArgumentError, "cannot feed 'n': "),
    ("total", {}, ax.errors.InvalidArgumentError, "missing required input"),
]


async def test_what_does_not_fit_the_model() -> None:
    async with served({"m": mixed()}) as url, ax.connect(url, model="m") as session:
        for fetches, feeds, kind, text in ERRORS:
            with pytest.raises(kind, match=text):
                await session.run(fetches, feeds)
        assert await session.run("total", {"x": X}) == 15


async def test_a_tensor_of_a_graph_is_no_fetch() -> None:
    graph = mixed()
    deep: Any = "total"
    for _ in range(100_000):
        deep = [deep]
    async with served({"m": graph}) as url, ax.connect(url, model="m") as session:
        with pytest.raises(ax.errors.InvalidTypeError, match="is no name"):
            await session.run(graph["total:0"])
        with pytest.raises(ax.errors.InvalidTypeError, match="is no name"):
            await session.run("total", {graph["x:0"]: X})
        with pytest.raises(ax.errors.InvalidArgumentError, match="nested too deeply"):
            await session.run(deep, {"x": X})
        with pytest.raises(ax.errors.UnimplementedError, match=r"no RunOptions\.trace"):
            await session.run("total", {"x": X}, options=ax.RunOptions(trace=True))
        with pytest.raises(ax.errors.UnimplementedError, match=r"no RunOptions\.retries"):
            await session.run("total", {"x": X}, options=ax.RunOptions(retries=1))


async def test_errors_of_the_server_are_typed_and_tell_whose_they_are() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, None, name="x")
        ax.check_numerics(x, "it is not finite", name="y")
    async with served({"m": graph}) as url, ax.connect(url, model="m") as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="it is not finite") as raised:
            await session.run("y", {"x": np.nan})
        assert (raised.value.node, raised.value.op) == ("y", "CheckNumerics")
        assert raised.value.__notes__ == [f"from model 'm' at {url}"]
        with pytest.raises(ax.errors.NotFoundError, match="unknown model: 'none'"):
            await ax.connect(url, model="none")
        with pytest.raises(ax.errors.NotFoundError, match="version 7"):
            await ax.connect(url, model="m", version="7")


async def test_a_deadline_ends_the_run_in_the_server() -> None:
    gate = Gate()
    async with served({"m": ModelSource(gate.model.session.graph)}) as url:
        async with ax.connect(url, model="m") as session:
            with pytest.raises(ax.errors.DeadlineExceededError, match=r"^the run took more than its timeout of 0\.3 s"):
                await session.run("y", {"x": 1}, options=ax.RunOptions(timeout=0.3))
            assert await gate.take(gate.cancelled, 1) == [1]
        async with ax.connect(url, model="m", timeout=5) as session:
            gate.open(2)
            assert await session.run("y", {"x": 2}) == 2
            for timeout in (1e10, float("inf")):
                assert await session.run("y", {"x": 2}, options=ax.RunOptions(timeout=timeout)) == 2
        await gate.model.close()


@pytest.mark.parametrize("how", ["cancel", "timeout", "close"])
async def test_who_leaves_ends_the_run_in_the_server(how: str) -> None:
    gate = Gate()
    async with served({"m": ModelSource(gate.model.session.graph)}) as url:
        async with ax.connect(url, model="m") as session:
            run = asyncio.ensure_future(session.run("y", {"x": 1}))
            assert await gate.take(gate.begun, 1) == [1]
            if how == "cancel":
                run.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await run
            elif how == "timeout":
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await run
            else:
                await session.close()
                with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
                    await run
            assert await gate.take(gate.cancelled, 1) == [1]
        await until(lambda: not gate.inside)
        await gate.model.close()


async def test_a_closed_session_takes_no_more() -> None:
    async with served({"m": mixed()}) as url:
        session = await ax.connect(url, model="m")
        await session.close()
        await session.close()
        assert repr(session).endswith(", closed>")
        with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
            session.map("total", [])
        with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
            session.stream("total")
        with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
            await session.run("total", {"x": X})


async def test_a_server_that_goes_away() -> None:
    async with served({"m": mixed()}) as url:
        session = await ax.connect(url, model="m")
    with pytest.raises(ax.errors.UnavailableError):
        await session.run("total", {"x": X})
    await session.close()
    with pytest.raises(ax.errors.UnavailableError) as raised:
        await ax.connect(url, model="m")
    assert raised.value.__notes__ == [f"from model 'm' at {url}"]


async def test_a_request_that_is_too_large_for_the_server() -> None:
    async with served({"m": mixed()}, max_body_bytes=10_000) as url, ax.connect(url, model="m") as session:
        large = {"x": np.ones((10_000, 3), np.float32)}
        with pytest.raises(ax.errors.ResourceExhaustedError, match="larger than max"):
            await session.run("total", large)
        async with session.stream("total") as stream:
            await stream.send(large)
            with pytest.raises(ax.errors.ResourceExhaustedError, match="larger than max"):
                await anext(stream)
        assert await session.run("total", {"x": X}) == 15


async def test_many_runs_at_once() -> None:
    async with served({"m": mixed()}) as url, ax.connect(url, model="m") as session:
        runs = [session.run("total", {"x": np.full((1, 3), i)}) for i in range(100)]
        assert await asyncio.gather(*runs) == [3 * i for i in range(100)]


async def test_calls_of_a_sequence() -> None:
    with ax.Graph() as graph:
        total = ax.stream_state(0.0)
        ax.identity(total.update(total.value + ax.placeholder(ax.float32, [], name="x")), name="total")
    config = {"sequence_batching": {"max_sequence_idle_microseconds": 60_000_000}}
    source = ModelSource(graph, outputs={"total": graph["total:0"]}, config=config)
    async with served({"m": source}) as url, ax.connect(url, model="m") as session:
        for sequence, value, expected in (("a", 1, 1), ("b", 10, 10), ("a", 2, 3), ("b", 20, 30)):
            parameters = {"sequence_id": sequence, "sequence_start": value in (1, 10)}
            assert await session.run("total", {"x": value}, parameters=parameters) == expected


# Other servers


async def test_answers_in_contents() -> None:
    async def infer(request: Any) -> Any:
        assert request.inputs[0].datatype == "FP32"
        response = message("ModelInferResponse")()
        response.outputs.add(name="y", datatype="FP32", shape=[2]).contents.fp32_contents.extend([1, 2])
        return response

    async with other_server(infer) as url, ax.connect(url, model="m") as session:
        np.testing.assert_array_equal(await session.run("y", {"x": 1}), np.array([1, 2], np.float32), strict=True)


async def test_parameters_of_a_request() -> None:
    async def infer(request: Any) -> Any:
        found.append(parameters_of(request.parameters))
        response = message("ModelInferResponse")(raw_output_contents=[b"\0\0\0\0"])
        response.outputs.add(name="y", datatype="FP32", shape=[])
        return response

    found: list[Any] = []
    given = {"sequence_id": 2**64 - 1, "sequence_start": True, "priority": -1, "text": "ü", "share": 0.5}
    async with other_server(infer) as url, ax.connect(url, model="m") as session:
        await session.run("y", {"x": 1}, parameters=given)
        await session.run("y", {"x": 1}, parameters={})
        wrong: list[Any] = [[1], {"a": None}, {"a": 2**64}, {1: 1}, {"a": [1]}]
        for each in wrong:
            with pytest.raises(ax.errors.InvalidTypeError, match="parameter"):
                await session.run("y", {"x": 1}, parameters=each)
    assert found == [given, {}]


async def test_a_server_that_does_not_tell_the_tensors_of_a_model() -> None:
    async def infer(request: Any) -> Any:
        assert [(each.name, each.datatype, list(each.shape)) for each in request.inputs] == [("any:0", "INT64", [2])]
        response = message("ModelInferResponse")(raw_output_contents=request.raw_input_contents)
        response.outputs.add(name="some:0", datatype="INT64", shape=[2])
        return response

    async with other_server(infer, told=metadata({}, {})) as url, ax.connect(url, model="m") as session:
        assert (await session.run("some:0", {"any:0": np.array([3, 4])})).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "z"}, "no output 'y'"),
        ({"shape": [3]}, "cannot be read: .*'y'"),
        ({"datatype": "FP31"}, "cannot be read: .*'FP31'"),
        ({"raw": 2}, "2 raw_output_contents, of 1 outputs"),
        ({"raw": 0}, "cannot be read: .*'y'"),
        (None, "is no ModelInferResponse"),
    ],
)
async def test_answers_that_cannot_be_read(change: dict[str, Any] | None, text: str) -> None:
    async def infer(_request: Any) -> Any:
        if change is None:
            return b"\xff"
        tensor = {"name": "y", "datatype": "FP32", "shape": [1], **change}
        response = message("ModelInferResponse")(raw_output_contents=[b"\0\0\0\0"] * tensor.pop("raw", 1))
        response.outputs.add(**tensor)
        return response

    async with other_server(infer) as url, ax.connect(url, model="m") as session:
        with pytest.raises(ax.errors.InternalError, match=text):
            await session.run("y", {"x": 1})


async def test_what_is_said_to_be_a_vector_may_have_any_rank() -> None:
    """The protocol cannot say that a rank is not known."""
    with ax.Graph() as graph:
        ax.reduce_sum(ax.placeholder(ax.float32, None, name="x"), name="total")
    async with served({"m": graph}) as url, ax.connect(url, model="m") as session:
        assert session.inputs["x"].shape.dims == (None,)
        assert [await session.run("total", {"x": np.ones(shape)}) for shape in ((), (2,), (2, 3))] == [1, 2, 6]
