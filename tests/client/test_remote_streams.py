"""Maps and streams over a connection: order, windows, failures, and how they end."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.client.connection import Calls
from asyncexec.client.remote_fetches import RemoteFetches
from asyncexec.client.remote_scope import StreamRules
from asyncexec.client.remote_signature import RemoteSignature
from asyncexec.client.remote_streams import RpcScope
from asyncexec.service.grpc.codec import set_parameters
from asyncexec.service.protocol_messages import message
from tests.client.servers import FLOATS, other_server, served
from tests.service.models import until
from tests.service.test_grpc_front import Gate

pytestmark = [pytest.mark.usefixtures("grpc_library"), pytest.mark.allow_blocking, pytest.mark.one_of("loop")]


def inverse() -> ax.Graph:
    """Input x, output y: 12 // x, which fails where x is 0."""
    with ax.Graph() as graph:
        ax.floordiv(12, ax.placeholder(ax.int32, [], name="x"), name="y")
    return graph


def gated(gate: Gate) -> dict[str, ax.Graph]:
    return {"m": gate.model.session.graph}


def numbers(*values: int) -> list[dict[str, int]]:
    return [{"x": value} for value in values]


# Maps


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_map_has_no_more_under_way_than_its_window(ordered: bool) -> None:
    gate, drawn = Gate(), []

    def items() -> Iterator[dict[str, int]]:
        for number in range(6):
            drawn.append(number)
            yield {"x": number}

    async with served(gated(gate)) as url, ax.connect(url, model="m") as session:
        values = session.map("y", items(), window=3, ordered=ordered)
        first = asyncio.ensure_future(anext(values))
        assert await gate.take(gate.begun, 3) == [0, 1, 2]
        assert drawn == [0, 1, 2]
        gate.open(2)
        if ordered:
            gate.open(0)
            assert await first == 0
        else:
            assert await first == 2
        assert await gate.take(gate.begun, 1) == [3]
        assert drawn == [0, 1, 2, 3]
        gate.open(*range(6))
        rest = [each async for each in values]
        assert (rest if ordered else sorted(rest)) == ([1, 2, 3, 4, 5] if ordered else [0, 1, 3, 4, 5])
    await gate.model.close()


async def test_a_map_of_an_async_iterable() -> None:
    async def items() -> AsyncIterator[dict[str, int]]:
        for number in (1, 2, 3):
            await asyncio.sleep(0)
            yield {"x": number}

    async with served({"m": inverse()}) as url, ax.connect(url, model="m") as session:
        assert [each async for each in session.map({"a": "y"}, items())] == [{"a": 12}, {"a": 6}, {"a": 4}]


async def test_a_mapping_that_is_changed_after_it_was_drawn() -> None:
    feeds: dict[str, Any] = {}
    array = np.zeros((), np.int32)

    def items() -> Iterator[dict[str, Any]]:
        for number in (1, 2, 3, 4):
            array[()] = number
            feeds["x"] = array
            yield feeds

    async with served({"m": inverse()}) as url, ax.connect(url, model="m") as session:
        assert [each async for each in session.map("y", items())] == [12, 6, 4, 3]


async def test_the_failure_of_an_item_ends_a_map_behind_the_results_before_it() -> None:
    async with served({"m": inverse()}) as url, ax.connect(url, model="m") as session:
        values = session.map("y", numbers(1, 2, 0, 3, 4))
        assert [await anext(values), await anext(values)] == [12, 6]
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"^item 2: .*\n.*node y") as raised:
            await anext(values)
        assert raised.value.node == "y"
        assert raised.value.__notes__ == [f"from model 'm' at {url}"]
        assert [each async for each in values] == []


@pytest.mark.parametrize("ordered", [True, False])
async def test_failures_as_results(ordered: bool) -> None:
    items = [{"x": 1}, {"x": 0}, {"x": [1]}, {"z": 1}, 5, {"x": 4}]
    async with served({"m": inverse()}) as url, ax.connect(url, model="m") as session:
        found = [each async for each in session.map("y", items, ordered=ordered, on_error="yield")]  # type: ignore[arg-type]
        async with session.stream("y", ordered=ordered, on_error="yield") as stream:
            for item in items:
                await stream.send(item)  # type: ignore[arg-type]
            await stream.close()
            streamed = [each async for each in stream]
    for results in (found, streamed):
        told = {str(each).partition("\n")[0] for each in results if isinstance(each, ax.errors.InvalidArgumentError)}
        assert sorted(each for each in results if not isinstance(each, Exception)) == [3, 12]
        assert {each.partition(":")[0] for each in told} == {"item 1", "item 2", "item 3", "item 4"}
    assert isinstance(found[4], ax.errors.InvalidTypeError) or not ordered


async def test_a_failure_cancels_what_was_sent_later() -> None:
    gate = Gate()
    with gate.model.session.graph:
        y = gate.model.session.graph["y:0"]
        ax.floordiv(6, y, name="z")
    async with served(gated(gate)) as url, ax.connect(url, model="m") as session:
        values = session.map("z", numbers(1, 0, 2, 3), window=4)
        first = asyncio.ensure_future(anext(values))
        await gate.take(gate.begun, 4)
        gate.open(0)
        assert await gate.take(gate.cancelled, 2) == [2, 3]
        gate.open(1)
        assert await first == 6
        with pytest.raises(ax.errors.InvalidArgumentError, match="item 1: "):
            await anext(values)
    await gate.model.close()


async def test_an_exception_of_the_items_comes_behind_the_results() -> None:
    def items() -> Iterator[dict[str, int]]:
        yield {"x": 1}
        yield {"x": 2}
        raise KeyError("no more")

    async with served({"m": inverse()}) as url, ax.connect(url, model="m") as session:
        values = session.map("y", items())
        assert [await anext(values), await anext(values)] == [12, 6]
        with pytest.raises(KeyError, match="no more"):
            await anext(values)
        assert [each async for each in values] == []


@pytest.mark.parametrize("how", ["with", "drop", "close"])
async def test_a_map_that_is_left_cancels_what_is_in_flight(how: str) -> None:
    gate, closed = Gate(), asyncio.Event()

    async def items() -> AsyncIterator[dict[str, int]]:
        try:
            for number in range(10):
                yield {"x": number}
        finally:
            closed.set()

    async with served(gated(gate)) as url, ax.connect(url, model="m") as session:
        values = session.map("y", items(), window=3)
        gate.open(0)
        if how == "with":
            async with values:
                assert await anext(values) == 0
                assert await gate.take(gate.begun, 4) == [0, 1, 2, 3]
            assert closed.is_set()
        else:
            assert await anext(values) == 0
            assert await gate.take(gate.begun, 4) == [0, 1, 2, 3]
            if how == "close":
                taker = asyncio.ensure_future(anext(values))
                await asyncio.sleep(0)
                await session.close()
                with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
                    await taker
                assert [each async for each in values] == []
            else:
                del values
                gc.collect()
        await closed.wait()
        assert await gate.take(gate.cancelled, 3) == [1, 2, 3]
    await gate.model.close()


async def test_what_is_no_map() -> None:
    async with served({"m": inverse()}) as url, ax.connect(url, model="m") as session:
        with pytest.raises(ax.errors.InvalidTypeError, match="map takes an iterable"):
            session.map("y", 3)  # type: ignore[arg-type]
        with pytest.raises(ax.errors.InvalidArgumentError, match="no output 'q'"):
            session.map("q", [])
        with pytest.raises(ax.errors.InvalidArgumentError, match="number of items from 1 on, not 0"):
            session.map("y", [], window=0)
        with pytest.raises(ax.errors.InvalidArgumentError, match="on_error is 'raise' or 'yield'"):
            session.stream("y", on_error="drop")  # type: ignore[arg-type]
        assert [each async for each in session.map("y", [])] == []


# Streams


async def test_a_stream() -> None:
    async with served({"m": inverse()}) as url, ax.connect(url, model="m", python_scalars=True) as session:
        async with session.stream(["y"], window=4) as stream:
            for value in (1, 2, 3, 4):
                await stream.send({"x": value})
            assert await anext(stream) == [12]
            await stream.send({"x": 12})
            await stream.close()
            assert [each async for each in stream] == [[6], [4], [3], [1]]
            with pytest.raises(ax.errors.FailedPreconditionError, match="nothing can be sent any more"):
                await stream.send({"x": 1})
        with pytest.raises(ax.errors.FailedPreconditionError, match="opened already"):
            await stream.__aenter__()
        with pytest.raises(ax.errors.FailedPreconditionError, match="not open"):
            session.stream("y").send({"x": 1})


async def test_a_full_window_makes_senders_wait_in_their_order() -> None:
    gate = Gate()
    async with served(gated(gate)) as url, ax.connect(url, model="m") as session:
        async with session.stream("y", window=2) as stream:
            await stream.send({"x": 0})
            await stream.send({"x": 1})
            assert await gate.take(gate.begun, 2) == [0, 1]
            late = [asyncio.ensure_future(stream.send({"x": number})) for number in (2, 3, 4)]
            await asyncio.sleep(0)
            late[0].cancel()  # nothing happens to the stream
            gate.open(*range(5))
            found = [await anext(stream) for _ in range(2)]
            await asyncio.gather(*late[1:])
            await stream.close()
            assert [*found, *[each async for each in stream]] == [0, 1, 3, 4]
        assert late[0].cancelled()
    await gate.model.close()


async def test_a_stream_that_is_left_cancels_its_runs() -> None:
    gate = Gate()
    async with served(gated(gate)) as url, ax.connect(url, model="m") as session:
        async with session.stream("y") as stream:
            await stream.send({"x": 1})
            assert await gate.take(gate.begun, 1) == [1]
        assert await gate.take(gate.cancelled, 1) == [1]
        stream = await session.stream("y").__aenter__()
        await stream.send({"x": 2})
        assert await gate.take(gate.begun, 1) == [2]
        del stream
        gc.collect()
        assert await gate.take(gate.cancelled, 1) == [2]
        async with session.stream("y") as stream:
            await stream.send({"x": 3})
            assert await gate.take(gate.begun, 1) == [3]
            taker = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            await session.close()
            with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
                await taker
        assert await gate.take(gate.cancelled, 1) == [3]
        await until(lambda: not gate.inside)
    await gate.model.close()


async def test_a_failure_ends_a_stream() -> None:
    async with served({"m": inverse()}) as url, ax.connect(url, model="m") as session, session.stream("y") as stream:
        for value in (1, 0, 2):
            await stream.send({"x": value})
        assert await anext(stream) == 12
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"^item 1: .*\n.*node y"):
            await anext(stream)
        with pytest.raises(ax.errors.AbortedError, match="the stream has ended: item 1: ") as raised:
            await stream.send({"x": 1})
        assert isinstance(raised.value.__cause__, ax.errors.InvalidArgumentError)
        assert [each async for each in stream] == []


async def countdown(x: int) -> AsyncIterator[int]:
    for number in range(x, -1, -1):
        yield number


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_model_with_several_answers(ordered: bool) -> None:
    with ax.Graph() as graph:
        ax.placeholder(ax.int32, [], name="x")
        ax.identity(ax.source(countdown, ax.int32, [], name="number"), name="y")
    async with served({"m": graph}) as url, ax.connect(url, model="m", python_scalars=True) as session:
        async with session.stream("y", ordered=ordered, window=2) as stream:
            await stream.send({"x": 2})
            await stream.send({"x": -1})  # it has none
            assert [await anext(stream) for _ in range(3)] == [2, 1, 0]
            await stream.send({"x": 1000})
            await stream.close()
            assert [each async for each in stream] == list(range(1000, -1, -1))
        with pytest.raises(ax.errors.UnimplementedError, match="decoupled"):
            await session.run("y", {"x": 1})
        async with session.stream("y") as stream:
            await stream.send({"x": 10**9})
            assert await anext(stream) == 10**9  # and is left


def answer(number: str, value: float | None, *, is_final: bool | None = None, **fields: Any) -> bytes:
    """A ModelStreamInferResponse to the request of that number."""
    response = message("ModelStreamInferResponse")(**fields)
    response.infer_response.id = number
    if value is not None:
        response.infer_response.outputs.add(name="y", datatype="FP32", shape=[])
        response.infer_response.raw_output_contents.append(np.float32(value).tobytes())
    if is_final is not None:
        set_parameters(response.infer_response.parameters, {"triton_final_response": is_final})
    found: bytes = response.SerializeToString()
    return found


async def requests_of(context: Any, count: int) -> list[Any]:
    """The first *count* requests of a call."""
    return [message("ModelInferRequest").FromString(await context.read()) for _ in range(count)]


@pytest.mark.parametrize(("ordered", "expected"), [(True, [10, 11, 20, 21, 22]), (False, [20, 10, 21, 11, 22])])
async def test_several_answers_to_a_request(ordered: bool, expected: list[int]) -> None:
    async def stream(context: Any) -> None:
        first, second, _none = await requests_of(context, 3)
        assert first.parameters["triton_enable_empty_final_response"].bool_param
        await context.write(answer(_none.id, None, is_final=True))
        for request, value, is_final in (
            (second, 20, False),
            (first, 10, False),
            (second, 21, False),
            (first, 11, True),
            (second, 22, False),
        ):
            await context.write(answer(request.id, value, is_final=is_final))
        await context.write(answer(second.id, None, is_final=True))
        assert await context.read() is grpc.aio.EOF

    async with (
        other_server(stream=stream) as url,
        ax.connect(url, model="m") as session,
        session.stream("y", ordered=ordered) as handle,
    ):
        for value in (1, 2, 3):
            await handle.send({"x": value})
        await handle.close()
        assert [each async for each in handle] == expected


async def test_answers_without_ids_and_statuses() -> None:
    async def stream(context: Any) -> None:
        await requests_of(context, 3)
        await context.write(answer("", 1))
        await context.write(answer("", None, error_message="it broke"))
        await context.write(answer("", 3))
        await context.write(answer("7", 4))  # nobody asked
        assert await context.read() is grpc.aio.EOF

    async with (
        other_server(stream=stream) as url,
        ax.connect(url, model="m") as session,
        session.stream("y", on_error="yield") as handle,
    ):
        for value in (1, 2, 3):
            await handle.send({"x": value})
        await handle.close()
        first, second, third = [each async for each in handle]
    assert (first, third) == (1, 3)
    assert type(second) is ax.errors.UnknownError
    assert str(second) == "item 1: it broke"


async def test_answers_may_follow_an_error() -> None:
    async def stream(context: Any) -> None:
        await requests_of(context, 1)
        await context.write(answer("0", 1, is_final=False))
        await context.write(answer("0", None, error_message="it broke", is_final=False))
        await context.write(answer("0", 2, is_final=True))
        await context.read()

    async with other_server(stream=stream) as url, ax.connect(url, model="m") as session:
        for on_error, expected in (("yield", [1, "item 0: it broke", 2]), ("raise", [1, "item 0: it broke"])):
            async with session.stream("y", on_error=on_error) as handle:  # type: ignore[arg-type]
                await handle.send({"x": 1})
                found: list[Any] = []
                try:
                    async for each in handle:
                        found.append(str(each) if isinstance(each, Exception) else each)
                        if len(found) == 3:
                            break
                except ax.errors.UnknownError as error:
                    found.append(str(error))
            assert found == expected


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("end", ax.errors.UnavailableError, "the server has ended the stream"),
        ("status", ax.errors.PermissionDeniedError, "go away"),
        ("nonsense", ax.errors.InternalError, "is no ModelStreamInferResponse"),
    ],
)
async def test_a_server_that_ends_a_stream(how: str, kind: type[Exception], text: str) -> None:
    async def stream(context: Any) -> None:
        await requests_of(context, 2)
        await context.write(answer("0", 1))
        if how == "status":
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "go away")
        if how == "nonsense":
            await context.write(b"\xff")
            await context.read()

    async with other_server(stream=stream) as url, ax.connect(url, model="m") as session:
        for on_error in ("raise", "yield"):
            async with session.stream("y", on_error=on_error) as handle:  # type: ignore[arg-type]
                await handle.send({"x": 1})
                await handle.send({"x": 2})
                assert await anext(handle) == 1
                with pytest.raises(kind, match=text):
                    await anext(handle)
                with pytest.raises(ax.errors.AbortedError, match=text):
                    await handle.send({"x": 2})
                assert [each async for each in handle] == []


class ScriptedCall:
    """A call of grpc.aio that has as many answers to request 0 as are asked for; the last is the final one."""

    def __init__(self, count: int) -> None:
        self.answers = deque(answer("0", i, is_final=i + 1 == count) for i in range(count))
        self.num_read = 0
        self.has_begun = asyncio.Event()
        self.is_cancelled = False

    async def write(self, _data: bytes) -> None:
        self.has_begun.set()

    async def done_writing(self) -> None:
        pass

    async def read(self) -> Any:
        await self.has_begun.wait()
        if not self.answers:
            return grpc.aio.EOF
        self.num_read += 1
        return self.answers.popleft()

    def cancel(self) -> None:
        self.is_cancelled = True


class ScriptedCalls(Calls):
    def __init__(self, call: ScriptedCall) -> None:
        super().__init__("", asyncio.get_running_loop(), None, None)
        self.call = call

    def stream(self, name: str) -> Any:
        return self.call


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("ordered", [True, False])
async def test_results_that_nobody_takes_stop_the_reading(ordered: bool) -> None:
    call = ScriptedCall(100)
    wanted = RemoteFetches("m", "", RemoteSignature.of("m", FLOATS), "y")
    scope = RpcScope(StreamRules(4, ordered, "raise"), wanted, ScriptedCalls(call), python_scalars=True)
    await scope.send({"x": 1})
    await turns(200)
    assert call.num_read == 4
    scope.close()
    await scope.drain()  # whoever closes may be who takes
    assert [await scope.take() for _ in range(3)] == [0, 1, 2]
    await turns(200)
    assert call.num_read == 7
    assert [await scope.take() for _ in range(97)] == list(range(3, 100))
    with pytest.raises(StopAsyncIteration):
        await scope.take()
    await scope.end()
    assert scope.has_ended


async def test_a_stream_is_for_one_event_loop() -> None:
    async with served({"m": inverse()}) as url, ax.connect(url, model="m") as session, session.stream("y") as stream:

        async def use() -> None:
            with pytest.raises(ax.errors.FailedPreconditionError, match="another event loop"):
                await stream.send({"x": 1})
            with pytest.raises(ax.errors.FailedPreconditionError, match="another event loop"):
                await anext(stream)

        await asyncio.to_thread(asyncio.run, use())
