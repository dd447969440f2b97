"""TensorFlow's own protocol, by raw messages: sessions, steps, partial runs, callables, errors, and what is refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import Code
from asyncexec.framework.op_registry import registry
from asyncexec.framework.tensor_proto import ByteBudget
from asyncexec.importers.graph_formats import format_graph_def
from asyncexec.importers.proto_messages import proto_messages
from asyncexec.ops.io.file_ops import FILE_OPS
from asyncexec.service.master.front import master_handler
from asyncexec.service.master.messages import SERVICE, message
from asyncexec.service.master.sessions import MasterSessions
from asyncexec.service.master.tensors import tensor_from_bytes, tensor_to_bytes
from asyncexec.service.server import serving as served
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import until

pytestmark = pytest.mark.usefixtures("grpc_library")

Feeds = dict[str, tuple[Any, ax.DType]]
NO_CONFIG = message("ConfigProto")()


class Client:
    """Calls of a server by their names."""

    def __init__(self, channel: Any, sessions: MasterSessions | None = None) -> None:
        self.channel = channel
        self.sessions = sessions

    def begin(self, name: str, request: Any, **options: Any) -> Any:
        """The call *name* with *request*, a message or bytes."""
        data = request if isinstance(request, bytes) else request.SerializeToString()
        response_class = message(f"{name}Response")
        call = self.channel.unary_unary(f"/{SERVICE}/{name}", None, response_class.FromString)
        return call(data, **{"timeout": 60, **options})

    async def __call__(self, name: str, /, **fields: Any) -> Any:
        return await self.begin(name, message(f"{name}Request")(**fields))

    async def refused(self, name: str, /, **fields: Any) -> tuple[grpc.StatusCode, str]:
        """How the call fails."""
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await self(name, **fields)
        return raised.value.code(), raised.value.details()

    async def create(self, make: Callable[[], object], **config: Any) -> Session:
        """A session of the graph that *make* makes."""
        created = await self("CreateSession", graph_def=graph_of(make), config=config)
        assert created.graph_version == 0
        return Session(self, created.session_handle)


class Session:
    """A session of a server."""

    def __init__(self, client: Client, handle: str) -> None:
        self.client = client
        self.handle = handle

    def request(
        self, fetches: Sequence[str], feeds: Feeds | None = None, targets: Sequence[str] = (), **fields: Any
    ) -> Any:
        """A RunStepRequest."""
        given = [{"name": name, "tensor": tensor_to_bytes(*value)} for name, value in (feeds or {}).items()]
        fields = {"session_handle": self.handle, "store_errors_in_response_body": True, **fields}
        return message("RunStepRequest")(feed=given, fetch=fetches, target=targets, **fields)

    async def step(self, *args: Any, **fields: Any) -> Any:
        """The RunStepResponse of ``request``."""
        return await self.client.begin("RunStep", self.request(*args, **fields))

    async def run(self, fetches: Sequence[str], *args: Any, **fields: Any) -> list[Any]:
        """The values of *fetches*."""
        response = await self.step(fetches, *args, **fields)
        assert (response.status_code, response.status_error_message) == (0, "")
        assert [tensor.name for tensor in response.tensor] == list(fetches)
        return [tensor_from_bytes(tensor.tensor, ByteBudget()) for tensor in response.tensor]

    async def refused(self, *args: Any, **fields: Any) -> tuple[Code, str]:
        """How a step fails."""
        response = await self.step(*args, **fields)
        assert not response.tensor
        return Code(response.status_code), response.status_error_message


def graph_of(make: Callable[[], object]) -> bytes:
    with ax.Graph() as graph:
        make()
    return format_graph_def(graph.as_graph_def(), "pb")


def arithmetic() -> None:
    x = ax.placeholder(ax.float32, [None], name="x")
    ax.add(ax.multiply(x, 2.0, name="y"), 1.0, name="z")
    ax.floordiv(10, ax.placeholder(ax.int32, [], name="i"), name="d")


def stuck() -> None:
    """A queue from which nobody gets anything."""
    queue = ax.FIFOQueue(1, [ax.int32], shapes=[[]], name="q")
    ax.identity(queue.dequeue(), name="got")


def floats(*values: float) -> tuple[Any, ax.DType]:
    return np.array(values, np.float32), ax.float32


def ints(value: int) -> tuple[Any, ax.DType]:
    return np.int32(value), ax.int32


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Client]:
    """A client of a server, whose sessions are closed at the end."""
    sessions, server = MasterSessions(**settings), grpc.aio.server()
    server.add_generic_rpc_handlers((master_handler(sessions),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with nothing_of_grpc_left():
        try:
            options = [("grpc.max_receive_message_length", -1)]
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
                yield Client(channel, sessions)
        finally:
            await server.stop(None)
            await sessions.close()
            del server, channel


async def test_a_session() -> None:
    async with serving() as client:
        session = await client.create(arithmetic)
        y, z = await session.run(["y:0", "z:0"], {"x:0": floats(1, 2)})
        assert (y.tolist(), z.tolist()) == ([2, 4], [3, 5])
        assert await session.run(["d:0"], {"i:0": ints(3)}) == [3]
        assert client.sessions is not None
        assert len(client.sessions) == 1
        await client("CloseSession", session_handle=session.handle)
        assert len(client.sessions) == 0
        code, text = await session.refused(["d:0"], {"i:0": ints(3)})
        assert (code, text.split(" is ")[1]) == (Code.ABORTED, "not found. Possibly, this master has restarted.")
        assert (await client.refused("CloseSession", session_handle="?"))[0] is grpc.StatusCode.ABORTED


async def test_fetches_have_the_order_and_the_names_of_the_request() -> None:
    async with serving() as client:
        session = await client.create(arithmetic)
        z, y, again, short = await session.run(["z:0", "y:0", "z:0", "y"], {"x": floats(1)})
        assert [float(value[0]) for value in (z, y, again, short)] == [3, 2, 3, 2]


def states() -> None:
    """A variable, and two queues, of which one has a name that is shared."""
    variable = ax.Variable(1, name="v")
    with ax.control_dependencies([variable.assign_add(1)]):
        ax.identity(variable.read_value(), name="next")
    named = ax.FIFOQueue(9, [ax.int32], shared_name="q", name="named")
    own = ax.FIFOQueue(9, [ax.int32], name="own")
    ax.group(variable.initializer, named.enqueue(7), own.enqueue(7), name="init")
    ax.stack([named.size(), own.size()], name="sizes")


async def test_sessions_share_what_has_a_name_until_a_reset() -> None:
    async with serving() as client:
        first, second = await client.create(states), await client.create(states)
        assert await first.run([], {}, ["init"]) == []
        assert [*await first.run(["next:0"]), *await second.run(["next:0"])] == [2, 3]
        assert [(await each.run(["sizes:0"]))[0].tolist() for each in (first, second)] == [[1, 1], [1, 0]]
        await client("CloseSession", session_handle=first.handle)
        assert await second.run(["next:0"]) == [4]
        apart = await client.create(states, isolate_session_state=True)
        assert (await apart.refused(["next:0"]))[0] is Code.NOT_FOUND
        await client("Reset", container=["another"])
        assert await (await client.create(states)).run(["next:0"]) == [5]
        await client("Reset")
        later = await client.create(states)
        assert (await later.refused(["next:0"]))[0] is Code.NOT_FOUND
        assert (await later.run(["sizes:0"]))[0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1.5, -2.0], ax.float32),
        ([1.5], ax.bfloat16),
        ([[1, 2], [3, 4]], ax.int64),
        ([True, False], ax.bool),
        ([1 + 2j], ax.complex64),
        ([b"", b"\xff\0a"], ax.string),
        (np.zeros((0, 3)), ax.float64),
        (7, ax.uint8),
        (b"text", ax.string),
    ],
    ids=str,
)
def test_tensors_both_ways(values: Any, dtype: ax.DType) -> None:
    array = np.array(values, object if dtype is ax.string else dtype.as_numpy_dtype)
    back = tensor_from_bytes(tensor_to_bytes(array, dtype), ByteBudget())
    assert np.shape(back) == array.shape
    assert np.asarray(back, array.dtype).tolist() == array.tolist()


async def test_large_tensors() -> None:
    async with serving() as client:
        session = await client.create(arithmetic)
        values = np.arange(2**19, dtype=np.float32)
        (y,) = await session.run(["y:0"], {"x:0": (values, ax.float32)})
        np.testing.assert_array_equal(y, values * 2)


async def test_errors_name_the_node() -> None:
    async with serving() as client:
        session = await client.create(arithmetic)
        code, text = await session.refused(["d:0"], {"i:0": ints(0)})
        assert code is Code.INVALID_ARGUMENT
        assert text.startswith("Integer division by zero\n\t [[{{node d}}]]")
        request = session.request(["d:0"], {"i:0": ints(0)}, store_errors_in_response_body=False)
        with pytest.raises(grpc.aio.AioRpcError, match="node d") as raised:
            await client.begin("RunStep", request)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await session.run(["d:0"], {"i:0": ints(5)}) == [2]


async def test_messages_of_any_length() -> None:
    def fail() -> None:
        ax.check_numerics(ax.constant(np.nan), "m" * 100_000, name="checked")

    async with serving() as client:
        session = await client.create(fail)
        code, text = await session.refused(["checked:0"])
        assert code is Code.INVALID_ARGUMENT
        assert "m" * 100_000 in text
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await client.begin("RunStep", session.request(["checked:0"], store_errors_in_response_body=False))
        assert len(raised.value.details()) == 2000


async def test_names_and_feeds_that_are_wrong() -> None:
    async with serving() as client:
        session = await client.create(arithmetic)
        for fetches, targets in ((["none:0"], []), (["y:7"], []), (["y:x"], []), ([], ["none"])):
            assert (await session.refused(fetches, {"x:0": floats(1)}, targets))[0] is Code.INVALID_ARGUMENT
        assert (await session.refused(["y:0"], {"none:0": floats(1)}))[0] is Code.INVALID_ARGUMENT
        code, text = await session.refused(["y:0"], {"x:0": floats(1), "x": floats(2)})
        assert (code, text) == (Code.INVALID_ARGUMENT, "'x:0' is fed more than once")
        feed = {"name": "x:0", "tensor": b"\xff"}
        response = await client(
            "RunStep", session_handle=session.handle, feed=[feed], store_errors_in_response_body=True
        )
        assert response.status_error_message == "feed 'x:0': this is no TensorProto"


async def test_a_feed_that_asks_for_much_memory() -> None:
    tensor = proto_messages(packed=False).message("TensorProto", "graph")(dtype=1, float_val=[1.0])
    tensor.tensor_shape.dim.add(size=2**40)
    async with serving() as client:
        session = await client.create(arithmetic)
        feed = {"name": "x:0", "tensor": tensor.SerializeToString()}
        refused = await client.refused("RunStep", session_handle=session.handle, feed=[feed], fetch=["y:0"])
        assert refused[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_requests_and_graphs_that_are_none(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as client:
        for name in ("CreateSession", "RunStep"):
            with pytest.raises(grpc.aio.AioRpcError, match=f"the request is no {name}Request") as raised:
                await client.begin(name, b"\xff")
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (await client.refused("CreateSession", graph_def=b"\xff"))[0] is grpc.StatusCode.DATA_LOSS
        config = {"device_count": {"CPU": 1000}}
        assert "1 to 64" in (await client.refused("CreateSession", config=config))[1]
        assert client.sessions is not None
        assert len(client.sessions) == 0
        client.sessions.create = None  # type: ignore[assignment, method-assign]
        with caplog.at_level(logging.ERROR):
            assert await client.refused("CreateSession") == (grpc.StatusCode.INTERNAL, "internal error")
        assert "a call of CreateSession failed" in caplog.text


async def test_extending() -> None:
    def more() -> None:
        ax.constant(5, name="five")

    async with serving() as client:
        created = await client("CreateSession")
        session = Session(client, created.session_handle)
        given = {"session_handle": session.handle, "graph_def": graph_of(arithmetic)}
        extended = await client("ExtendSession", current_graph_version=0, **given)
        assert extended.new_graph_version == 1
        assert await client.refused("ExtendSession", current_graph_version=0, **given) == (
            grpc.StatusCode.ABORTED,
            "Current version is 1 but caller expected 0.",
        )
        code, text = await client.refused("ExtendSession", current_graph_version=1, **given)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "already exists in the Graph" in text
        given["graph_def"] = graph_of(more)
        assert (await client("ExtendSession", current_graph_version=1, **given)).new_graph_version == 2
        assert await session.run(["five:0", "d:0"], {"i:0": ints(4)}) == [5, 2]


async def test_timeouts() -> None:
    async with serving() as client:
        session = await client.create(stuck)
        code, text = await session.refused(["got:0"], options={"timeout_in_ms": 20})
        assert code is Code.DEADLINE_EXCEEDED
        assert "more than its timeout of 0.02 s" in text
        session = await client.create(stuck, operation_timeout_in_ms=20)
        assert (await session.refused(["got:0"]))[0] is Code.DEADLINE_EXCEEDED


async def test_clients_that_leave_and_sessions_that_are_closed_end_their_steps() -> None:
    async with serving() as client:
        assert client.sessions is not None
        session = await client.create(stuck)
        with client.sessions.used(session.handle) as inside:
            leaving = client.begin("RunStep", session.request(["got:0"]))
            await until(lambda: inside.num_calls == 2)
            leaving.cancel()
            await until(lambda: inside.num_calls == 1)
            staying = asyncio.create_task(session.refused(["got:0"]))
            await until(lambda: inside.num_calls == 2)
        await client("CloseSession", session_handle=session.handle)
        assert await staying == (Code.CANCELLED, "Session has been closed.")


async def test_metadata() -> None:
    async with serving() as client:
        session = await client.create(arithmetic, graph_options={"optimizer_options": {"opt_level": -1}})
        options = {"trace_level": 3, "output_partition_graphs": True}
        response = await session.step(["z:0"], {"x:0": floats(1)}, options=options)
        metadata = proto_messages(packed=False).run_metadata.FromString(response.metadata)
        (device,) = metadata.step_stats.dev_stats
        assert {"y", "z"} <= {node.node_name for node in device.node_stats}
        assert len(metadata.partition_graphs) == 1
        assert (await session.step(["z:0"], {"x:0": floats(1)})).metadata == b""


async def test_partial_runs() -> None:
    async with serving() as client:
        session = await client.create(arithmetic)
        names = {"feed": ["x:0", "i"], "fetch": ["y:0", "z:0", "d:0"]}
        setup = await client("PartialRunSetup", session_handle=session.handle, **names)
        part = {"partial_run_handle": setup.partial_run_handle}
        assert await session.run(["d:0"], {"i:0": ints(2)}, **part) == [5]
        code, text = await session.refused(["y:0"], **part)
        assert code is Code.INVALID_ARGUMENT
        assert "'x:0'" in text
        assert await session.run([], {"x:0": floats(1)}, **part) == []
        (z,), (y,) = await session.run(["z:0", "y:0"], **part, options={"timeout_in_ms": 60_000})
        assert (y, z) == (2, 3)
        assert await session.refused(["y:0"], **part) == (
            Code.INVALID_ARGUMENT,
            "Must run 'setup' before performing partial runs!",
        )


async def test_partial_runs_that_do_not_end_well() -> None:
    async with serving() as client:
        session = await client.create(arithmetic)

        async def begin(**names: Any) -> dict[str, str]:
            setup = await client("PartialRunSetup", session_handle=session.handle, **names)
            return {"partial_run_handle": setup.partial_run_handle}

        assert (await client.refused("PartialRunSetup", session_handle=session.handle, fetch=["none"]))[0] is (
            grpc.StatusCode.INVALID_ARGUMENT
        )
        part = await begin(feed=["i:0", "x:0"], fetch=["d:0", "y:0"])
        code, text = await session.refused(["d:0"], {"i:0": ints(0)}, **part)
        assert (code, "{{node d}}" in text) == (Code.INVALID_ARGUMENT, True)
        assert "'setup'" in (await session.refused(["y:0"], {"x:0": floats(1)}, **part))[1]
        left = await begin(feed=["i:0"], fetch=["d:0"])
        await session.run([], {"i:0": ints(1)}, **left)  # the end of the server ends it


async def test_callables() -> None:
    async with serving() as client:
        session = await client.create(arithmetic)
        options = {"feed": ["x:0"], "fetch": ["z:0", "y:0"], "run_options": {"trace_level": 1}}
        given = {"session_handle": session.handle}
        given["handle"] = (await client("MakeCallable", options=options, **given)).handle
        feed = [tensor_to_bytes(*floats(1, 2))]
        response = await client("RunCallable", feed=feed, **given)
        assert [tensor_from_bytes(each, ByteBudget()).tolist() for each in response.fetch] == [[3, 5], [2, 4]]
        assert response.metadata
        assert "takes 1 feeds, not 0" in (await client.refused("RunCallable", **given))[1]
        await client("ReleaseCallable", **given)
        assert "No such callable handle: 1" in (await client.refused("RunCallable", feed=feed, **given))[1]
        connected = {"tensor_connection": [{"from_tensor": "y:0", "to_tensor": "x:0"}]}
        refused = await client.refused("MakeCallable", session_handle=session.handle, options=connected)
        assert refused[0] is grpc.StatusCode.UNIMPLEMENTED


async def test_devices() -> None:
    async with serving() as client:
        session = await client.create(arithmetic, device_count={"CPU": 2, "GPU": 0})
        devices = (await client("ListDevices", session_handle=session.handle)).local_device
        assert [device.name[-5:] for device in devices] == ["CPU:0", "CPU:1"]
        assert all(device.device_type == "CPU" and device.incarnation for device in devices)
        (device,) = (await client("ListDevices")).local_device
        assert device.name == devices[0].name


async def test_reset_closes_all_sessions() -> None:
    async with serving() as client:
        sessions = [await client.create(arithmetic) for _ in range(3)]
        await client("Reset")
        for session in sessions:
            assert (await session.refused(["d:0"], {"i:0": ints(1)}))[0] is Code.ABORTED


async def test_files_are_refused_unless_they_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"secret")

    def read() -> None:
        ax.raw_ops.ReadFile(filename=str(path).encode(), name="read")

    async with serving() as client:
        session = await client.create(read)
        code, text = await session.refused(["read:0"])
        assert code is Code.PERMISSION_DENIED
        assert "the service does not let its clients do that" in text
    async with serving(allows_files=True) as client:
        assert await (await client.create(read)).run(["read:0"]) == [b"secret"]


def test_file_ops_are_those_that_touch_files() -> None:
    assert "WriteFile" in FILE_OPS
    assert all(registry.lookup(name).op_def.touches_outside for name in FILE_OPS)


async def test_python_code_of_the_process_is_refused() -> None:
    @ax.op
    def code_of_the_server(x: int) -> int:
        return x

    async with serving(allows_files=True) as client:
        session = await client.create(lambda: code_of_the_server(ax.constant(1)))
        code, text = await session.refused([f"{code_of_the_server.name}:0"])
        assert code is Code.PERMISSION_DENIED
        assert code_of_the_server.name in text


async def test_a_limit_of_sessions() -> None:
    async with serving(max_sessions=1) as client:
        session = await client.create(arithmetic)
        assert (await client.refused("CreateSession"))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        await client("CloseSession", session_handle=session.handle)
        await client.create(arithmetic)
        assert client.sessions is not None
        await client.sessions.close()
        assert (await client.refused("CreateSession"))[0] is grpc.StatusCode.UNAVAILABLE


@pytest.mark.virtual_clock
async def test_sessions_that_nobody_uses_are_closed() -> None:
    sessions = MasterSessions(session_idle_s=100)
    used, idle = await sessions.create(b"", NO_CONFIG), await sessions.create(b"", NO_CONFIG)
    await asyncio.sleep(60)
    with sessions.used(used.handle):
        await asyncio.sleep(200)
        assert len(sessions) == 1
        with pytest.raises(ax.errors.AbortedError), sessions.used(idle.handle):
            pass
    await asyncio.sleep(60)
    with sessions.used(used.handle):
        pass
    await asyncio.sleep(60)
    assert len(sessions) == 1
    await asyncio.sleep(60)
    assert len(sessions) == 0
    await sessions.close()


async def test_the_service_has_it_where_that_is_asked_for() -> None:
    options: dict[str, Any] = {"http_port": 0, "grpc_port": 0, "tokens": ["t"]}
    token = (("authorization", "Bearer t"),)
    async with nothing_of_grpc_left():
        async with service_of(tensorflow_master=True, **options) as client:
            assert (await client.refused("CreateSession"))[0] is grpc.StatusCode.UNAUTHENTICATED
            request = message("CreateSessionRequest")(graph_def=graph_of(arithmetic))
            created = await client.begin("CreateSession", request, metadata=token)
            session = Session(client, created.session_handle)
            response = await client.begin("RunStep", session.request(["d:0"], {"i:0": ints(2)}), metadata=token)
            assert tensor_from_bytes(response.tensor[0].tensor, ByteBudget()) == 5
        async with service_of(**options) as client:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await client.begin("CreateSession", b"", metadata=token)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        del client, session, raised


@asynccontextmanager
async def service_of(**options: Any) -> AsyncIterator[Client]:
    """A client of a whole service."""
    async with served({}, **options) as ports, grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
        yield Client(channel)
