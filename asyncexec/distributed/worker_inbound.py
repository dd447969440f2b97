"""Inbound: what a worker gets by a connection, checked, and handed to the session that it is for.

What cannot be understood ends the connection that has brought it, and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from asyncexec.distributed.graph_wire import ConstantKey, unpack_register
from asyncexec.distributed.messages import (
    CONSTANTS_STEP,
    Done,
    Kind,
    pack_done,
    pack_json,
    session_of,
    step_in_session,
    told_number,
    told_object,
    unpack_abort,
    unpack_forget,
    unpack_json,
    unpack_run,
)
from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.wire_errors import encode_error
from asyncexec.distributed.worker_session import WorkerSession
from asyncexec.framework.errors import (
    AbortedError,
    AlreadyExistsError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
    UnavailableError,
)

if TYPE_CHECKING:
    from asyncexec.distributed.worker import Worker

WORKER_ROLE: Final = "worker"
CLIENT_ROLE: Final = "client"
_MAX_DIGITS: Final = 20


class Inbound:
    """Gets what comes by a connection that a client, or another worker, has made."""

    def __init__(self, worker: Worker, connection: Connection) -> None:
        self._worker = worker
        self._connection = connection
        self._bytes_before = 0  # what has come by it before
        worker.limit_queue(connection)
        self._begin(connection.peer.role)

    def _begin(self, role: str) -> None:
        if role == CLIENT_ROLE:
            self._connection.send(Kind.STATUS, self._worker.status())
        elif role == WORKER_ROLE:
            self._worker.joined(self._connection)

    def on_message(self, kind: int, body: bytes) -> None:
        try:
            handler = _HANDLERS.get(kind) if self._connection.peer.role == CLIENT_ROLE else None
            if handler is None:
                raise InvalidArgumentError(f"there are no messages of kind {kind} from a {self._connection.peer.role}")
            handler(self._worker, self._connection, body)
        except OpError as error:
            self._worker.refuse(self._connection, error)

    def on_tensor(self, step_id: int, key: str, value: object, is_dead: bool) -> None:
        before, self._bytes_before = self._bytes_before, self._connection.reader.num_tensor_bytes
        num_bytes = self._bytes_before - before
        session = self._session(step_id)
        try:
            if session is None:
                return
            if step_in_session(step_id) != CONSTANTS_STEP:
                if session.connection is not self._connection:
                    session.count_from_worker(num_bytes)
                session.arrive(step_id, key, value, is_dead)
            elif session.connection is self._connection:
                session.take_constant(*_constant(key), value)
        except OpError as error:
            self._worker.refuse(self._connection, error)

    def on_bad_tensor(self, step_id: int, key: str, error: OpError) -> None:
        session = self._session(step_id)
        refusal = InvalidArgumentError(f"{self._worker.name} got from {self._connection.peer.name}: {error.message}")
        try:
            if session is None:
                return
            if step_in_session(step_id) != CONSTANTS_STEP:
                session.refuse(step_id, refusal)
            elif session.connection is self._connection:
                session.refuse_constant(_constant(key)[0], refusal)
        except OpError as failure:
            self._worker.refuse(self._connection, failure)

    def on_lost(self, error: OpError) -> None:
        self._worker.lose(self._connection, error)

    def _session(self, step_id: int) -> WorkerSession | None:
        """The session that a step is of, if it has not ended and is not that of another client."""
        session = self._worker.session(session_of(step_id))
        if session is not None and session.connection is not self._connection:
            return session if self._connection.peer.role == WORKER_ROLE else None
        return session


class Outbound(Inbound):
    """Gets what comes by a connection to another worker that was made here: that it is lost."""

    def _begin(self, role: str) -> None:
        """It is sent values, and says nothing."""

    def on_lost(self, error: OpError) -> None:
        self._worker.lose_peer(self._connection, error)


def _open(worker: Worker, connection: Connection, body: bytes) -> None:
    told = unpack_json(body)
    number = told_number(told, "session")
    try:
        worker.open_session(number, connection, told_object(told, "peers") or {})
    except (AlreadyExistsError, ResourceExhaustedError, UnavailableError) as error:
        told = {"session": number, "error": encode_error(error, objects=False)}
        connection.send(Kind.REFUSED, pack_json(told))
    else:
        connection.send(Kind.OPENED, pack_json({"session": number}))


def _close(worker: Worker, connection: Connection, body: bytes) -> None:
    worker.close_session(told_number(unpack_json(body), "session"), connection)


def _of_client(worker: Worker, connection: Connection, number: int) -> WorkerSession | None:
    """The session *number*, if *connection* has begun it."""
    session = worker.session(number)
    return session if session is not None and session.connection is connection else None


def _register(worker: Worker, connection: Connection, body: bytes) -> None:
    registration = unpack_register(body)
    session = _of_client(worker, connection, registration.session)
    if session is not None:
        session.register(registration)


def _deregister(worker: Worker, connection: Connection, body: bytes) -> None:
    told = unpack_json(body)
    session = _of_client(worker, connection, told_number(told, "session"))
    if session is not None:
        session.deregister(told_number(told, "graph"))


def _run(worker: Worker, connection: Connection, body: bytes) -> None:
    run = unpack_run(body)
    session = _of_client(worker, connection, session_of(run.step_id))
    if session is not None and worker.is_draining:
        session.refuse_run(run, UnavailableError(f"{worker.name} is about to end"))
    elif session is not None:
        session.run(run)
    else:
        error: OpError = AbortedError(f"{worker.name} has no session {session_of(run.step_id)} of this client")
        if worker.is_closed:
            error = UnavailableError(f"{worker.name} is closed")
        connection.send(Kind.DONE, pack_done(Done(run.step_id, encode_error(error, objects=False))))


def _abort(worker: Worker, connection: Connection, body: bytes) -> None:
    told = unpack_abort(body)
    session = _of_client(worker, connection, session_of(told.step_id))
    if session is not None:
        session.abort(told)


def _forget(worker: Worker, connection: Connection, body: bytes) -> None:
    forget = unpack_forget(body)
    session = _of_client(worker, connection, session_of(forget.step_id))
    if session is not None:
        session.forget(forget)


def _constant(key: str) -> tuple[int, ConstantKey]:
    """The graph that a constant is of, its device and its name."""
    graph_id, _, place = key.partition(";")
    device, _, name = place.partition(";")
    if not (graph_id.isascii() and graph_id.isdigit()) or len(graph_id) > _MAX_DIGITS:
        raise InvalidArgumentError(f"a constant has the key {key[:100]!r}")
    return int(graph_id), (device, name)


_HANDLERS: Final[dict[int, Callable[[Worker, Connection, bytes], None]]] = {
    Kind.OPEN: _open,
    Kind.CLOSE: _close,
    Kind.REGISTER: _register,
    Kind.DEREGISTER: _deregister,
    Kind.RUN: _run,
    Kind.ABORT: _abort,
    Kind.FORGET: _forget,
}
