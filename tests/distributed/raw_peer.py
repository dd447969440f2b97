"""A peer that speaks the transport, and says what it likes."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from asyncexec.distributed.cluster_spec import worker_name
from asyncexec.distributed.messages import (
    SESSION_BITS,
    Done,
    Kind,
    Run,
    RunFlags,
    pack_json,
    pack_run,
    unpack_done,
    unpack_json,
)
from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.transport.dialing import dial
from asyncexec.distributed.transport.frames import FRAME, TENSOR
from asyncexec.distributed.transport.identity import Identity
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.security import Security
from asyncexec.distributed.worker import Worker
from asyncexec.distributed.worker_limits import WorkerLimits
from asyncexec.framework.tensor_codec import HEAD
from tests.distributed.clusters import until
from tests.distributed.transport.ends import Recorder

OPTIONS = TransportOptions()
CPU = "/job:worker/replica:0/task:0/device:CPU:0"
HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
OTHER = "/job:worker/replica:0/task:5"
_numbers = itertools.count(1000)


class Peer:
    """One connection to a worker, and what has come by it."""

    def __init__(self, connection: Connection, recorder: Recorder) -> None:
        self.connection = connection
        self.recorder = recorder

    async def told(self, kind: Kind) -> Any:
        """The next message of that kind, with the errors of REFUSED."""
        found: list[bytes] = []

        def has_come(recorder: Recorder) -> bool:
            found[:] = [body for each, body in recorder.messages if each == kind]
            return bool(found)

        await self.recorder.until(has_come)
        self.recorder.messages.remove((kind, found[0]))
        return unpack_done(found[0]) if kind is Kind.DONE else unpack_json(found[0])

    async def open(self, session: int = 7) -> None:
        self.connection.send(Kind.OPEN, pack_json({"session": session, "peers": {}}))
        await self.told(Kind.OPENED)

    async def done(self) -> Done:
        found: Done = await self.told(Kind.DONE)
        return found

    async def is_refused(self) -> str:
        """Why the worker has closed the connection."""
        told = await self.told(Kind.REFUSED)
        await self.recorder.until(lambda recorder: recorder.lost)
        message: str = told["error"]["message"]
        assert worker_name("worker", 0) in message
        return message


@contextlib.asynccontextmanager
async def peer(address: str, role: str = "client", name: str = "", incarnation: int = 0) -> AsyncIterator[Peer]:
    """A connection in that role, with an incarnation of its own."""
    recorders: list[Recorder] = []

    def make(connection: Connection) -> Recorder:
        recorders.append(Recorder(connection))
        return recorders[-1]

    identity = Identity(name or worker_name("localhost", 0), incarnation or next(_numbers), role)
    connection = await dial(address, identity, Security(), make, options=OPTIONS)
    try:
        yield Peer(connection, recorders[0])
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def lone_worker(
    limits: WorkerLimits | None = None, *, objects: bool = False
) -> AsyncIterator[tuple[Worker, str]]:
    """A worker, and where it listens.  At the end it serves somebody who behaves."""
    with tempfile.TemporaryDirectory() as folder:
        async with Worker("worker", 0, objects=objects, limits=limits, options=OPTIONS) as worker:
            address = await worker.listen(f"unix:{Path(folder)}/w")
            yield worker, address
            await until(lambda: not worker.num_sessions and not worker._closing)
            async with peer(address) as other:
                await run_const(other)
            await until(lambda: not worker.num_sessions and not worker._closing)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def step(number: int, session: int = 7) -> int:
    """The number of a step of a session."""
    return (session << SESSION_BITS) + number


def graph_def(*nodes: Mapping[str, Any]) -> str:
    """The text of a GraphDef."""
    return json.dumps({"node": list(nodes), "versions": {"producer": 1882}})


CONST: Mapping[str, Any] = {
    "name": "c",
    "op": "Const",
    "device": CPU,
    "attr": {
        "dtype": {"type": "DT_FLOAT"},
        "value": {"tensor": {"dtype": "DT_FLOAT", "tensorShape": {}, "floatVal": [3.0]}},
    },
}


def send_node(tensor: str, to: str = HOST, **changes: Any) -> Mapping[str, Any]:
    """A ``_Send`` of float32."""
    attr = {
        "T": {"type": "DT_FLOAT"},
        "tensor_name": {"s": _base64("edge")},
        "send_device": {"s": _base64(CPU)},
        "send_device_incarnation": {"i": "1"},
        "recv_device": {"s": _base64(to)},
        "client_terminated": {"b": False},
    }
    return {"name": "send", "op": "_Send", "device": CPU, "input": [tensor], "attr": attr | changes}


RECV: Mapping[str, Any] = {
    "name": "r",
    "op": "_Recv",
    "device": CPU,
    "attr": {
        "tensor_type": {"type": "DT_FLOAT"},
        "tensor_name": {"s": _base64("edge")},
        "send_device": {"s": _base64(f"{OTHER}/device:CPU:0")},
        "send_device_incarnation": {"i": "1"},
        "recv_device": {"s": _base64(CPU)},
        "client_terminated": {"b": False},
    },
}
RECV_KEY = f"{OTHER}/device:CPU:0;0000000000000001;{CPU};edge;0:0"


def lying_tensor(step_id: int, key: str, dtype: int, size: int) -> bytes:
    """A frame whose head tells of *size* bytes, and that has 4."""
    body = HEAD.pack(step_id, len(key), dtype, 0, 0, size) + key.encode() + bytes(4)
    return FRAME.pack(len(body), TENSOR) + body


def registration(*nodes: Mapping[str, Any], session: int = 7, graph: int = 1, **changes: Any) -> bytes:
    """REGISTER of one partition."""
    told: dict[str, Any] = {
        "session": session,
        "graph": graph,
        "partitions": {CPU: graph_def(*nodes)},
        "user_ops": {},
        "outside": [],
        "in_functions": {},
        "constants": [],
        "collectives": False,
    }
    return pack_json(told | changes)


async def run_const(client: Peer, session: int = 99) -> None:
    """A step of a graph that sends a constant to the client."""
    await client.open(session)
    client.connection.send(Kind.REGISTER, registration(CONST, send_node("c"), session=session))
    client.connection.send(Kind.RUN, pack_run(Run(step(1, session), 1, RunFlags.NONE)))
    done = await client.done()
    assert done.error is None, done.error
    ours = [each for each in client.recorder.tensors if each[0] == step(1, session)]
    assert [("edge" in key, value, is_dead) for _, key, value, is_dead in ours] == [(True, 3.0, False)]
