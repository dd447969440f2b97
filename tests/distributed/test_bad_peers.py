"""Peers that are authenticated, and broken: each gets a typed error or is left; the worker serves others."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest

from asyncexec.distributed.messages import (
    Abort,
    Forget,
    Kind,
    Run,
    RunFlags,
    pack_abort,
    pack_forget,
    pack_json,
    pack_run,
)
from asyncexec.distributed.transport.frames import FRAME, PONG, PONG_BODY
from asyncexec.distributed.worker_limits import WorkerLimits
from asyncexec.framework.errors import Code
from tests.distributed.clusters import until
from tests.distributed.raw_peer import (
    CONST,
    CPU,
    HOST,
    OTHER,
    RECV,
    RECV_KEY,
    lone_worker,
    lying_tensor,
    peer,
    registration,
    run_const,
    send_node,
    step,
)

pytestmark = pytest.mark.one_of("loop")

KEY = f"{HOST};0000000000000001;{CPU};edge;0:0"


@pytest.mark.parametrize(
    ("kind", "body", "tells"),
    [
        (Kind.OPEN, b"{", "is no JSON"),
        (Kind.OPEN, b"[]", "is a JSON object"),
        (Kind.OPEN, b"[" * 100_000, "is no JSON"),
        (Kind.OPEN, b"{}", "'session'"),
        (Kind.OPEN, b'{"session": -1}', "'session'"),
        (Kind.OPEN, b'{"session": "7"}', "'session'"),
        (Kind.OPEN, b'{"session": true}', "'session'"),
        (Kind.OPEN, b'{"session": 18446744073709551616}', "'session'"),
        (Kind.OPEN, b'{"session": 7, "peers": 1}', "'peers'"),
        (Kind.OPEN, b'{"session": 7, "peers": {"/job:w": 1}}', "/job:w"),
        (Kind.OPEN, b'{"session": 7, "peers": {"/job:w": ["nowhere", 1]}}', "nowhere"),
        (Kind.CLOSE, b"{}", "'session'"),
        (Kind.REGISTER, b"{}", "malformed"),
        (Kind.REGISTER, b'{"session": 7, "graph": 1, "partitions": [], "user_ops": {}}', "malformed"),
        (Kind.DEREGISTER, b'{"session": 7}', "'graph'"),
        (Kind.RUN, b"", "0 bytes where 13"),
        (Kind.RUN, bytes(12), "12 bytes where 13"),
        (Kind.ABORT, b"x", "1 bytes"),
        (Kind.FORGET, b"x", "1 bytes"),
        (Kind.STATUS, b"", "kind 1"),
        (Kind.DONE, bytes(8), "kind 8"),
        (99, b"", "kind 99"),
    ],
)
async def test_malformed_messages_are_refused(kind: int, body: bytes, tells: str) -> None:
    async with lone_worker() as (worker, address), peer(address) as client, peer(address) as other:
        await client.open()
        await other.open(8)
        client.connection.send(kind, body)
        assert tells in await client.is_refused()
        await until(lambda: worker.session(7) is None)
        assert worker.session(8) is not None
        await run_const(other)


async def test_workers_send_no_messages() -> None:
    async with lone_worker() as (_, address), peer(address, "worker", "/job:worker/replica:0/task:5") as other:
        other.connection.send(Kind.OPEN, b'{"session": 7}')
        await other.recorder.until(lambda recorder: recorder.lost)


async def test_a_session_of_another_connection() -> None:
    """Nobody can do anything with it but its own client."""
    async with lone_worker() as (worker, address), peer(address) as owner:
        await owner.open()
        async with peer(address) as other:
            other.connection.send(Kind.OPEN, pack_json({"session": 7, "peers": {}}))
            refused = await other.told(Kind.REFUSED)
            assert (refused["session"], refused["error"]["code"]) == (7, Code.ALREADY_EXISTS)
            other.connection.send(Kind.REGISTER, registration(CONST))
            other.connection.send_tensor(step(5), KEY, np.float32(1))
            other.connection.send_tensor(step(0), f"1;{CPU};c", np.float32(1))
            other.connection.send(Kind.ABORT, pack_abort(Abort(step(1), False)))
            other.connection.send(Kind.FORGET, pack_forget(Forget(step(1), step(100))))
            other.connection.send(Kind.DEREGISTER, pack_json({"session": 7, "graph": 1}))
            other.connection.send(Kind.CLOSE, pack_json({"session": 7}))
            assert await other.told(Kind.CLOSED) == {"session": 7}
            other.connection.send(Kind.RUN, pack_run(Run(step(1), 1, RunFlags.NONE)))
            done = await other.done()
            assert done.error is not None
            assert (done.error["code"], "no session 7" in done.error["message"]) == (Code.ABORTED, True)
            assert (worker.num_sessions, worker.num_steps) == (1, 0)
        await run_const(owner)


async def test_a_client_that_connects_again_takes_its_session_over() -> None:
    """Its old connection may be half open, and the worker yet to hear of that."""
    async with lone_worker() as (worker, address), peer(address, incarnation=5) as first:
        await first.open()
        first.connection.send(Kind.REGISTER, registration(CONST, constants=[[CPU, "c"]]))
        first.connection.send(Kind.RUN, pack_run(Run(step(1), 1, RunFlags.NONE)))
        await until(lambda: worker.num_steps == 1)
        async with peer(address, incarnation=5) as second:
            await second.open()
            assert (worker.num_sessions, worker.num_steps) == (1, 0)
            first.connection.send(Kind.CLOSE, pack_json({"session": 7}))
            await first.told(Kind.CLOSED)
            assert worker.num_sessions == 1
            await run_const(second)


async def test_a_worker_that_connects_again_takes_the_place_of_its_old_connection() -> None:
    async with lone_worker() as (worker, address), peer(address) as client:
        await client.open()
        client.connection.send(Kind.REGISTER, registration(RECV, send_node("r")))
        client.connection.send(Kind.RUN, pack_run(Run(step(1), 1, RunFlags.NONE)))
        async with peer(address, "worker", OTHER, incarnation=1) as first:
            await until(lambda: worker.num_steps == 1)
            async with peer(address, "worker", OTHER, incarnation=2) as second:
                await first.recorder.until(lambda recorder: recorder.lost)
                done = await client.done()
                assert done.error is not None
                assert (done.error["code"], OTHER in done.error["message"]) == (Code.UNAVAILABLE, True)
                # The end of the old one, found late, is no news of the new one.
                client.connection.send(Kind.RUN, pack_run(Run(step(2), 1, RunFlags.NONE)))
                second.connection.send_tensor(step(2), RECV_KEY, np.float32(4))
                assert (await client.done()).error is None
        await run_const(client)


async def test_runs_of_what_there_is_not() -> None:
    async with lone_worker() as (worker, address), peer(address) as client:
        await client.open()
        client.connection.send(Kind.RUN, pack_run(Run(step(1), 5, RunFlags.NONE)))
        done = await client.done()
        assert done.error is not None
        assert (done.error["code"], "no graph 5" in done.error["message"]) == (Code.ABORTED, True)
        client.connection.send(Kind.ABORT, pack_abort(Abort(step(9), True)))
        client.connection.send(Kind.FORGET, pack_forget(Forget(step(9), step(3))))
        client.connection.send(Kind.DEREGISTER, pack_json({"session": 7, "graph": 12}))
        await run_const(client)
        assert worker.num_steps == 1


async def test_a_step_begins_once() -> None:
    async with lone_worker() as (worker, address), peer(address) as client:
        await client.open()
        client.connection.send(Kind.REGISTER, registration(CONST, send_node("c")))
        for number in (3, 3, 2):
            client.connection.send(Kind.RUN, pack_run(Run(step(number), 1, RunFlags.NONE)))
        dones = [await client.done() for _ in range(3)]
        codes = {(done.step_id, None if done.error is None else done.error["code"]) for done in dones}
        assert codes == {(step(3), None), (step(3), Code.ABORTED), (step(2), None)}
        client.connection.send(Kind.FORGET, pack_forget(Forget(step(3), step(2))))
        client.connection.send(Kind.RUN, pack_run(Run(step(3), 1, RunFlags.NONE)))
        client.connection.send(Kind.RUN, pack_run(Run(step(1), 1, RunFlags.NONE)))
        for _ in range(2):
            done = await client.done()
            assert done.error is not None
            assert done.error["code"] == Code.ABORTED
        client.connection.send_tensor(step(3), KEY, np.float32(1))  # late
        await run_const(client)
        assert worker.num_steps == 2


async def test_forgetting_tells_of_all_before() -> None:
    async with lone_worker() as (worker, address), peer(address) as client:
        await client.open()
        for number in range(1, 6):
            client.connection.send_tensor(step(number), KEY, np.zeros(10, np.float32))
        await until(lambda: worker.num_steps == 5)
        client.connection.send(Kind.FORGET, pack_forget(Forget(step(2), step(5))))
        await until(lambda: worker.num_steps == 1)
        session = worker.session(7)
        assert session is not None
        assert session._early == {step(5): 40 + len(KEY)}


async def test_graphs_have_numbers_of_their_own() -> None:
    async with lone_worker() as (_, address), peer(address) as client:
        await client.open()
        client.connection.send(Kind.REGISTER, registration(CONST))
        client.connection.send(Kind.REGISTER, registration(CONST))
        assert "graph 1 has been registered" in await client.is_refused()


def node(name: str, op: str, *inputs: str, **attr: Any) -> dict[str, Any]:
    return {"name": name, "op": op, "device": CPU, "input": list(inputs), "attr": attr}


FLOAT = {"type": "DT_FLOAT"}


@pytest.mark.parametrize(
    ("nodes", "code", "tells"),
    [
        ([node("a", "NoSuchOp")], {Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED}, "NoSuchOp"),
        (
            [node("a", "Neg", "b", T=FLOAT), node("b", "Neg", "a", T=FLOAT)],
            {Code.INVALID_ARGUMENT},
            "cycle",
        ),
        ([node("a", "Neg", "missing", T=FLOAT)], {Code.INVALID_ARGUMENT}, "missing"),
        ([node("a", "ReadFile", "c"), CONST], {Code.INVALID_ARGUMENT}, "expected string"),
        ([CONST, CONST], {Code.INVALID_ARGUMENT}, "'c'"),
        ([CONST, send_node("c", to="nowhere")], {Code.UNAVAILABLE, Code.INVALID_ARGUMENT}, "nowhere"),
        ([CONST, send_node("c", to="/job:ghost/task:0/cpu:0")], {Code.UNAVAILABLE}, "/job:ghost"),
        (
            [CONST, send_node("c", recv_device={"s": "O2E7Yjs7Yzs7"})],
            {Code.UNAVAILABLE, Code.INVALID_ARGUMENT},
            "",
        ),
    ],
)
async def test_hostile_graphs(nodes: list[Any], code: set[Code], tells: str) -> None:
    async with lone_worker() as (_, address), peer(address) as client:
        await client.open()
        client.connection.send(Kind.REGISTER, registration(*nodes))
        client.connection.send(Kind.RUN, pack_run(Run(step(1), 1, RunFlags.NONE)))
        done = await client.done()
        assert done.error is not None
        assert Code(done.error["code"]) in code, done.error
        assert tells in json.dumps(done.error), done.error
        await run_const(client)


@pytest.mark.parametrize(
    ("changes", "code", "tells"),
    [
        ({"partitions": {CPU: "{"}}, {Code.INVALID_ARGUMENT}, "no GraphDef"),
        ({"partitions": {CPU: "[" * 50_000}}, {Code.INVALID_ARGUMENT}, "no GraphDef"),
        ({"partitions": {CPU: '{"node": 1}'}}, {Code.INVALID_ARGUMENT}, "no GraphDef"),
        ({"partitions": {"nowhere": '{"node": []}'}}, {Code.INVALID_ARGUMENT}, "nowhere"),
        (
            {"partitions": {"/job:worker/replica:0/task:1/device:CPU:0": '{"node": []}'}},
            {Code.INVALID_ARGUMENT},
            "task:1",
        ),
        ({"partitions": {}}, {Code.OK}, ""),
        ({"user_ops": {"f.0": "AAAA"}}, {Code.PERMISSION_DENIED}, "f"),
        ({"outside": ["ReadFile", "c"], "partitions": {CPU: "{}"}}, {Code.OK}, ""),
        ({"in_functions": {"f": ["ReadFile"]}, "partitions": {CPU: "{}"}}, {Code.OK}, ""),
    ],
)
async def test_hostile_registrations(changes: dict[str, Any], code: set[Code], tells: str) -> None:
    async with lone_worker() as (_, address), peer(address) as client:
        await client.open()
        client.connection.send(Kind.REGISTER, registration(CONST, **changes))
        client.connection.send(Kind.RUN, pack_run(Run(step(1), 1, RunFlags.NONE)))
        done = await client.done()
        found = Code.OK if done.error is None else Code(done.error["code"])
        assert found in code, done.error
        assert tells in json.dumps(done.error), done.error
        await run_const(client)


@pytest.mark.parametrize(
    "told", ["AAAA", "", "not base85 \x00", "gASVGQAAAAAAAACMCGJ1aWx0aW5zlIwEZXZhbJSTlC4="], ids=["a", "b", "c", "d"]
)
async def test_functions_that_cannot_be_imported(told: str) -> None:
    async with lone_worker(objects=True) as (_, address), peer(address) as client:
        await client.open()
        client.connection.send(Kind.REGISTER, registration(CONST, user_ops={"shout.0": told}))
        client.connection.send(Kind.RUN, pack_run(Run(step(1), 1, RunFlags.NONE)))
        done = await client.done()
        assert done.error is not None
        assert Code(done.error["code"]) is Code.INVALID_ARGUMENT, done.error
        assert "shout" in done.error["message"]
        await run_const(client)


async def test_constants_that_never_come() -> None:
    """The graph waits; its step can be aborted, the graph deregistered, and the session closed."""
    async with lone_worker() as (worker, address), peer(address) as client:
        await client.open()
        told = registration(CONST, send_node("c"), constants=[[CPU, "c"]])
        client.connection.send(Kind.REGISTER, told)
        for number in (1, 2, 3):
            client.connection.send(Kind.RUN, pack_run(Run(step(number), 1, RunFlags.NONE)))
        client.connection.send(Kind.ABORT, pack_abort(Abort(step(1), False)))
        done = await client.done()
        assert (done.step_id, done.error is not None) == (step(1), True)
        client.connection.send_tensor(step(0), f"2;{CPU};c", np.ones(9, np.float32))  # of no graph
        client.connection.send_tensor(step(0), f"1;{CPU};d", np.ones(9, np.float32))  # not asked for
        client.connection.send(Kind.DEREGISTER, pack_json({"session": 7, "graph": 1}))
        assert {(await client.done()).step_id for _ in range(2)} == {step(2), step(3)}
        client.connection.send(Kind.REGISTER, registration(CONST, graph=2, constants=[[CPU, "c"]]))
        await run_const(client)
        client.connection.send(Kind.CLOSE, pack_json({"session": 7}))
        await client.told(Kind.CLOSED)
        assert worker.num_sessions == 1


@pytest.mark.parametrize("key", ["", "1", "x;y;z", "-1;a;b", "\u0661;a;b", "9" * 5000])
async def test_constants_with_bad_keys(key: str) -> None:
    async with lone_worker() as (_, address), peer(address) as client:
        await client.open()
        client.connection.send_tensor(step(0), key, np.float32(1))
        if key == "1":
            await run_const(client)  # of no graph
        else:
            assert "constant" in await client.is_refused()


@pytest.mark.parametrize(("dtype", "size"), [(1, 8), (1, 2**40), (77, 4), (20, 4), (1, 0)])
@pytest.mark.parametrize("is_constant", [False, True])
async def test_values_that_lie(dtype: int, size: int, is_constant: bool) -> None:
    """The step that they are for fails, or the graph; the connection goes on."""
    async with lone_worker() as (_, address), peer(address) as client:
        await client.open()
        constants = [[CPU, "c"]] if is_constant else []
        client.connection.send(Kind.REGISTER, registration(CONST, send_node("c"), constants=constants))
        key = f"1;{CPU};c" if is_constant else KEY
        await until(lambda: not client.connection.queued_bytes)
        client.connection._transport.write(lying_tensor(step(0 if is_constant else 1), key, dtype, size))
        client.connection.send(Kind.RUN, pack_run(Run(step(1), 1, RunFlags.NONE)))
        done = await client.done()
        assert done.error is not None
        assert Code(done.error["code"]) is Code.INVALID_ARGUMENT
        assert "task:0" in done.error["message"]
        await run_const(client)


async def test_a_message_that_is_no_frame() -> None:
    async with lone_worker() as (worker, address), peer(address) as client:
        await client.open()
        client.connection._transport.write(FRAME.pack(4, 200) + bytes(4))
        await client.recorder.until(lambda recorder: recorder.lost)
        await until(lambda: worker.num_sessions == 0)


class TestLimits:
    """What a peer can make a worker hold."""

    async def test_sessions(self) -> None:
        async with lone_worker(WorkerLimits(max_sessions=2)) as (worker, address), peer(address) as client:
            for number in (1, 2, 3, 4):
                client.connection.send(Kind.OPEN, pack_json({"session": number, "peers": {}}))
            refused = [await client.told(Kind.REFUSED) for _ in range(2)]
            assert [each["session"] for each in refused] == [3, 4]
            assert {each["error"]["code"] for each in refused} == {Code.RESOURCE_EXHAUSTED}
            assert worker.num_sessions == 2
            client.connection.send(Kind.CLOSE, pack_json({"session": 1}))
            await client.told(Kind.CLOSED)
            await client.open(3)

    async def test_graphs(self) -> None:
        async with lone_worker(WorkerLimits(max_graphs=3)) as (_, address), peer(address) as client:
            await client.open()
            for number in range(4):
                client.connection.send(Kind.REGISTER, registration(CONST, graph=number))
            assert "max_graphs" in await client.is_refused()

    async def test_steps(self) -> None:
        async with lone_worker(WorkerLimits(max_steps=3)) as (worker, address), peer(address) as client:
            await client.open()
            client.connection.send(Kind.REGISTER, registration(CONST, constants=[[CPU, "c"]]))
            for number in range(1, 6):
                client.connection.send(Kind.RUN, pack_run(Run(step(number), 1, RunFlags.NONE)))
            for number in (4, 5):
                done = await client.done()
                assert done.error is not None
                assert (done.step_id, done.error["code"]) == (step(number), Code.RESOURCE_EXHAUSTED)
            assert worker.num_steps == 3

    async def test_values_of_steps_that_never_begin(self) -> None:
        async with lone_worker(WorkerLimits(max_early_bytes=1000)) as (worker, address), peer(address) as client:
            await client.open()
            for number in range(1, 11):
                client.connection.send_tensor(step(number), KEY, np.zeros(200, np.uint8))
            assert "max_early_bytes" in await client.is_refused()
            await until(lambda: worker.num_steps == 0)

    async def test_steps_that_never_begin(self) -> None:
        async with lone_worker(WorkerLimits(max_steps=5)) as (worker, address), peer(address) as client:
            await client.open()
            other = peer(address, "worker", "/job:worker/replica:0/task:9")
            async with other as pusher:
                for number in range(1, 7):
                    pusher.connection.send_tensor(step(number), KEY, None, is_dead=True)
                await pusher.recorder.until(lambda recorder: recorder.lost)
            assert worker.num_steps == 5
            await run_const(client)

    async def test_begun_steps_give_room(self) -> None:
        async with lone_worker(WorkerLimits(max_early_bytes=1000)) as (_, address), peer(address) as client:
            await client.open()
            client.connection.send(Kind.REGISTER, registration(CONST, send_node("c")))
            for number in range(1, 21):
                client.connection.send_tensor(step(number), KEY, np.zeros(500, np.uint8))
                client.connection.send(Kind.RUN, pack_run(Run(step(number), 1, RunFlags.NONE)))
            for _ in range(20):
                assert (await client.done()).error is None

    async def test_what_is_remembered_of_forgotten_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("asyncexec.distributed.worker_session._MAX_FORGOTTEN", 10)
        async with lone_worker() as (worker, address), peer(address) as client:
            await client.open()
            for number in range(2, 100):
                client.connection.send(Kind.FORGET, pack_forget(Forget(step(number), step(1))))
            client.connection.send_tensor(step(50), KEY, np.float32(1))
            client.connection.send_tensor(step(200), KEY, np.float32(1))
            await until(lambda: worker.num_steps == 1)
            session = worker.session(7)
            assert session is not None
            assert (len(session._forgotten), list(session._steps)) == (10, [step(200)])

    @pytest.mark.parametrize("payload", [1_000, 300_000], ids=["small", "large"])
    async def test_a_client_that_says_it_is_alive_and_reads_nothing(self, payload: int) -> None:
        """What waits for it is bounded; when it reads again, it finds out why it was left."""
        most = 1_000_000
        async with lone_worker(WorkerLimits(max_queued_bytes=most)) as (worker, address), peer(address) as client:
            await client.open()
            constant = {**CONST, "attr": bytes_attr(payload)}
            client.connection.send(Kind.REGISTER, registration(constant, send_node("c", T={"type": "DT_UINT8"})))
            client.connection.send(Kind.RUN, pack_run(Run(step(1), 1, RunFlags.NONE)))
            assert (await client.done()).error is None
            (session,) = worker._sessions.values()
            connection = session.connection
            client.connection._transport.pause_reading()
            queued = 0
            for number in range(2, 60_000):
                if not worker.num_sessions:
                    break
                client.connection._transport.write(FRAME.pack(PONG_BODY.size, PONG) + PONG_BODY.pack(0, 0))
                client.connection.send(Kind.RUN, pack_run(Run(step(number), 1, RunFlags.NONE)))
                await asyncio.sleep(0)
                queued = max(queued, connection.queued_bytes)
            assert not worker.num_sessions
            assert queued < most + 4 * payload + 100_000  # and a piece that the system has been given
            client.connection._transport.resume_reading()
            assert "max_queued_bytes" in await client.is_refused()
            assert all(len(value) == payload for _, _, value, _ in client.recorder.tensors)


def bytes_attr(count: int) -> dict[str, object]:
    """The attributes of a constant of *count* bytes."""
    shape = {"dim": [{"size": str(count)}]}
    content = base64.b64encode(bytes(count)).decode()
    tensor = {"dtype": "DT_UINT8", "tensorShape": shape, "tensorContent": content}
    return {"dtype": {"type": "DT_UINT8"}, "value": {"tensor": tensor}}
