"""Streams over gRPC: decoupled models, sequences, and readers that are slow."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import grpc
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service.grpc.codec import parameters_of
from tests.service.conftest import nothing_of_grpc_left
from tests.service.decoupled_models import Taps, sums_of_sequences
from tests.service.models import model_of, until
from tests.service.test_grpc_front import (
    FakeContext,
    Gate,
    Served,
    infer_request,
    rest_of,
    serving,
    stream_of,
    tasks_of_the_front,
)

pytestmark = pytest.mark.usefixtures("grpc_library")

WANTS_FINAL = {"triton_enable_empty_final_response": {"bool_param": True}}


def request(n: int, **fields: Any) -> bytes:
    """A call of the model of Taps."""
    made = infer_request({"n": ("INT32", [], struct.pack("<i", n))}, id=str(n), **fields)
    encoded: bytes = made.SerializeToString()
    return encoded


def told(answer: Any) -> tuple[str, int | None, bool]:
    """The id, the output and whether it is the last that *answer* has."""
    response = answer.infer_response
    is_final = parameters_of(response.parameters)["triton_final_response"]
    raw = response.raw_output_contents
    return response.id, int(np.frombuffer(raw[0], "<i4")[0]) if raw else None, is_final


async def test_responses_come_as_they_are_ready() -> None:
    taps = Taps()
    async with serving(Served(taps.model)) as client:
        stream = client.stream()
        for n in (1, 2):
            await stream.write(request(n, parameters=WANTS_FINAL if n == 2 else {}))
        found = []
        for n in (2, 1, 1, 2):
            taps.let(n)
            found.append(told(await stream.read()))
        assert found == [("2", 0, False), ("1", 0, False), ("1", 1, False), ("2", 1, False)]
        stream.cancel()
        await until(lambda: sorted(taps.closed) == [1, 2])
        await until(lambda: not tasks_of_the_front())


async def test_the_end_of_a_request_is_told_where_it_is_asked_for() -> None:
    taps = Taps()
    taps.counts = {0: 0, 1: 0, 2: 1}
    taps.let(2)
    async with serving(Served(taps.model)) as client:
        stream = client.stream()
        for n in (0, 1, 2):
            await stream.write(request(n, parameters=WANTS_FINAL if n else {}))
        await stream.done_writing()
        answers = await rest_of(stream)
        assert sorted(map(told, answers), key=str) == [("1", None, True), ("2", 0, False), ("2", None, True)]
        finals = [answer.infer_response for answer in answers if told(answer)[2]]
        assert {(final.model_name, final.model_version) for final in finals} == {("m", "1")}
        assert await stream.code() is grpc.StatusCode.OK


async def test_an_error_ends_its_request_and_not_the_stream() -> None:
    taps = Taps()
    taps.counts = {1: 1, 2: 1, 3: 1, 4: 1}
    taps.failures = {1: ValueError("it broke"), 2: ax.errors.InvalidArgumentError("n is 2"), 3: KeyError("x")}
    async with serving(Served(taps.model)) as client:
        stream = client.stream()
        for n, text in {1: "ValueError: it broke", 2: "n is 2", 3: "KeyError: 'x'"}.items():
            taps.let(n)
            await stream.write(request(n))
            assert told(await stream.read()) == (str(n), 0, False)
            failed = await stream.read()
            assert failed.error_message.partition("\n")[0] == text
            assert told(failed) == (str(n), None, True)
        await stream.write(infer_request({}, id="x").SerializeToString())
        assert "missing required input" in (await stream.read()).error_message
        taps.let(4)
        await stream.write(request(4))
        assert told(await stream.read()) == ("4", 0, False)
        await stream.done_writing()
        assert await rest_of(stream) == []


@pytest.mark.parametrize("is_known", [True, False])
async def test_an_error_ends_the_stream_where_that_is_asked_for(is_known: bool) -> None:
    taps = Taps()
    async with serving(Served(taps.model)) as client:
        stream = client.stream(metadata=[("triton_grpc_error", "true")])
        taps.let(1)
        await stream.write(request(1))
        assert told(await stream.read()) == ("1", 0, False)
        await stream.write(infer_request({}, model_name="m" if is_known else "none").SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stream.read()
        status = grpc.StatusCode.INVALID_ARGUMENT if is_known else grpc.StatusCode.NOT_FOUND
        assert raised.value.code() is status
        await until(lambda: taps.closed == [1])
        await until(lambda: not tasks_of_the_front())


async def test_one_response_is_all_that_the_other_call_carries() -> None:
    taps = Taps()
    async with serving(Served(taps.model)) as client:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await client.begin("ModelInfer", request(1))
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert raised.value.details() == "ModelInfer RPC doesn't support models with decoupled transaction policy"


async def test_usual_and_decoupled_models_in_one_stream() -> None:
    gate, taps = Gate(), Taps()
    taps.model.name = "taps"
    async with serving(Served(gate.model, taps.model)) as client:
        stream = client.stream()
        for number in (1, 2):
            await stream.write(gate.request(number).SerializeToString())
        await stream.write(request(7, model_name="taps"))
        taps.let(7)
        assert told(await stream.read())[:2] == ("7", 0)  # it does not wait for 1 and 2
        gate.open(2)
        taps.let(7)
        assert told(await stream.read())[:2] == ("7", 1)
        gate.open(1)
        assert [(await stream.read()).infer_response.id for _ in range(2)] == ["1", "2"]
        stream.cancel()
        await until(lambda: taps.closed == [7])


async def test_the_deadline_of_a_stream_closes_sources() -> None:
    taps = Taps()
    async with serving(Served(taps.model)) as client:
        stream = client.stream(timeout=0.3)
        await stream.write(request(1))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stream.read()
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: not tasks_of_the_front())
        assert taps.closed == [*taps.taps]  # those that have begun


async def test_the_timeout_of_a_request_ends_it() -> None:
    taps = Taps()
    async with serving(Served(taps.model)) as client:
        stream = client.stream()
        await stream.write(request(1, parameters={"timeout": {"int64_param": 100_000}}))
        assert "took more than its timeout of 0.1 s" in (await stream.read()).error_message
        assert taps.closed == [*taps.taps]  # those that have begun
        await stream.done_writing()
        assert await rest_of(stream) == []


async def test_a_slow_reader_holds_the_source() -> None:
    taps = Taps()
    context = FakeContext([request(1)])
    taps.let(1, 1000)
    async with nothing_of_grpc_left():
        stream = stream_of(Served(taps.model), context)
        await context.is_read.wait()
        await until(lambda: taps.drawn.get(1, 0) > 10)
        for _ in range(500):
            await asyncio.sleep(0)
        assert taps.drawn[1] < 30  # a few items ahead of the first response, which nobody takes
        stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stream
        assert taps.closed == [1]
        await taps.model.close()


async def test_a_client_that_goes_while_a_response_is_written() -> None:
    taps = Taps()
    taps.let(1, 1000)
    context = FakeContext([request(1)], grpc.aio.InternalError())
    stream = stream_of(Served(taps.model), context)
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert taps.closed == [1]
    await taps.model.close()


async def test_calls_of_a_sequence_begin_in_the_order_of_the_stream() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [None], name="x")
        total = ax.stream_state(0)
        ax.identity(total.update(total.value * 10 + x[0]), name="y")
    model = model_of(graph, sequence_batching={"max_sequence_idle_microseconds": 10**9})
    async with serving(Served(model)) as client:
        stream = client.stream()
        for i, count in enumerate((1, 2**17, 1, 2**16, 1)):  # large messages are read on a thread
            data = np.full(count, i + 1, "<i4").tobytes()
            parameters = {"sequence_id": {"int64_param": 5}, "sequence_start": {"bool_param": i == 0}}
            await stream.write(
                infer_request({"x": ("INT32", [count], data)}, parameters=parameters).SerializeToString()
            )
        await stream.done_writing()
        assert [told(answer)[1] for answer in await rest_of(stream)] == [1, 12, 123, 1234, 12345]


async def test_sequences_over_both_calls() -> None:
    model = model_of(sums_of_sequences(), sequence_batching={"max_sequence_idle_microseconds": 10**9})

    def call(value: int, sequence: dict[str, Any], **flags: bool) -> Any:
        parameters = {"sequence_id": sequence, **{f"sequence_{name}": {"bool_param": flags[name]} for name in flags}}
        data = struct.pack("<i", value)
        return infer_request({"INPUT": ("INT32", [1], data)}, parameters=parameters)

    async with serving(Served(model)) as client:
        stream = client.stream()
        for value, flags in ((1, {"start": True}), (2, {}), (3, {"end": True}), (4, {})):
            await stream.write(call(value, {"string_param": "a"}, **flags).SerializeToString())
        await stream.done_writing()
        *sums, refused = await rest_of(stream)
        assert [told(each)[1] for each in sums] == [1, 3, 6]
        assert "inference request for sequence a to model 'm' must specify the START flag" in refused.error_message
        for value, flags in ((5, {"start": True}), (6, {"end": True})):
            answer = await client.begin("ModelInfer", call(value, {"uint64_param": 2**64 - 1}, **flags))
        assert struct.unpack("<i", answer.raw_output_contents[0]) == (11,)
        for wrong in ({"bool_param": True}, {"double_param": 1.5}, {"int64_param": -1}):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await client.begin("ModelInfer", call(1, wrong, start=True))
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
