"""RemoteWorker: a worker as the process of the session knows it, and the way to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from asyncexec.distributed.messages import (
    Done,
    Kind,
    session_of,
    told_number,
    told_object,
    unpack_done,
    unpack_json,
)
from asyncexec.distributed.peer_link import PeerLink
from asyncexec.distributed.transport.connection import Connection, Crossings
from asyncexec.distributed.transport.dialing import dial
from asyncexec.distributed.transport.identity import Expected, Identity
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.security import Security
from asyncexec.distributed.wire_errors import decode_error
from asyncexec.framework.clock import NS_PER_MS
from asyncexec.framework.device import Device, DeviceAttributes, DeviceLocality
from asyncexec.framework.errors import (
    InvalidArgumentError,
    OpError,
    UnavailableError,
)
from asyncexec.session.worker_statistics import WorkerStatistics

if TYPE_CHECKING:
    from asyncexec.distributed.cluster import Cluster


class RemoteWorker:
    """A worker, and the way to it.

    Attributes:
        incarnation: that of the process that was reached last; 0 before.
        is_launched: whether the launcher of the cluster sees to it that it runs.
    """

    incarnation: int
    link: PeerLink

    def __init__(self, cluster: Cluster, name: str, address: str, *, is_launched: bool = True) -> None:
        self.is_launched = is_launched
        self.name = name
        self.address = address
        self.incarnation = 0
        self.devices: Sequence[Device] = ()
        self._times_lost = 0
        self._crossings = Crossings()  # by connections that are lost
        self._tensors_from_workers = self._bytes_from_workers = 0
        self._cluster = cluster
        self.link = PeerLink(name, lambda: cluster.dial(self), cluster.lose, cluster.fail_step)

    async def dial(self, identity: Identity, security: Security, options: TransportOptions) -> Connection:
        """A connection over which the worker has told of its devices."""
        status = asyncio.get_running_loop().create_future()
        connection = await dial(
            self.address,
            identity,
            security,
            partial(_Inbound, self._cluster, self, status),
            expects=Expected(self.name),
            options=options,
        )
        try:
            told = await asyncio.wait_for(status, options.handshake_timeout_s)
            devices = told.get("devices")
            if not isinstance(devices, list) or not devices:
                raise InvalidArgumentError(f"{self.name} has told of no devices")
            self.devices = [_device(each, self.name) for each in devices]
        except TimeoutError:
            connection.abort()
            raise UnavailableError(f"{self.name} at {self.address} has not told of its devices") from None
        except BaseException:
            connection.abort()
            raise
        self.incarnation = connection.peer.incarnation
        self._cluster.joined(self, connection)
        return connection

    def lose(self, error: OpError) -> None:
        """The connection is lost: dial again."""
        self._crossings = self._crossings_so_far()
        self._times_lost += 1
        self.link.lose()
        self._cluster.lose(self.name, error)
        if self._cluster.is_open:
            self.link.dial()

    def note_done(self, done: Done) -> None:
        """Take note of the values that other workers have sent to it."""
        self._tensors_from_workers += done.tensors_from_workers
        self._bytes_from_workers += done.bytes_from_workers

    def statistics(self, running_steps: int) -> WorkerStatistics:
        """How it is doing, with so many steps under way."""
        connection, crossings = self.link.connection, self._crossings_so_far()
        return WorkerStatistics(
            name=self.name,
            is_connected=connection is not None,
            times_lost=self._times_lost,
            running_steps=running_steps,
            tensors_sent=crossings.tensors_sent,
            tensors_received=crossings.tensors_received,
            bytes_sent=crossings.bytes_sent,
            bytes_received=crossings.bytes_received,
            tensors_from_workers=self._tensors_from_workers,
            bytes_from_workers=self._bytes_from_workers,
            queued_bytes=0 if connection is None else connection.queued_bytes,
            round_trip_ms=None if connection is None else connection.round_trip_ns / NS_PER_MS,
            shortest_round_trip_ms=None if connection is None else connection.shortest_round_trip_ns / NS_PER_MS,
        )

    def _crossings_so_far(self) -> Crossings:
        connection = self.link.connection
        now = Crossings() if connection is None else connection.crossings
        return Crossings(*map(sum, zip(self._crossings, now, strict=True)))


def _device(told: Any, worker: str) -> Device:
    """The device that *worker* has told of; InvalidArgumentError when that is none of its own."""
    try:
        attributes = DeviceAttributes(
            str(told["name"]),
            str(told["device_type"]),
            int(told["memory_limit"]),
            DeviceLocality(int(told["locality"]["bus_id"]), int(told["locality"]["numa_node"])),
            int(told["incarnation"]),
            str(told["physical_device_desc"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{worker} told of a device, and left out or mistook {error}") from None
    device = Device(attributes, is_remote=True)
    if str(device.parsed_name.address_space) != worker:
        raise InvalidArgumentError(f"{worker} told of a device that is not its own: {device.name}")
    return device


class _Inbound:
    """Gets what a worker says."""

    def __init__(
        self, cluster: Cluster, worker: RemoteWorker, status: asyncio.Future[dict[str, Any]], connection: Connection
    ) -> None:
        self._cluster = cluster
        self._worker = worker
        self._status = status
        self._connection = connection

    def on_message(self, kind: int, body: bytes) -> None:
        try:
            self._take(kind, body)
        except Exception as error:
            shown = error.message if isinstance(error, OpError) else repr(error)
            self._connection.lose(f"it has sent a malformed message: {shown}")

    def _take(self, kind: int, body: bytes) -> None:
        if kind == Kind.DONE:
            done = unpack_done(body)
            self._worker.note_done(done)
            session = self._cluster.session(session_of(done.step_id))
            if session is not None:
                session.done(self._worker.name, done, self._connection.clock_offset_ns)
        elif kind == Kind.STATUS:
            if not self._status.done():
                self._status.set_result(unpack_json(body))
        elif kind in (Kind.OPENED, Kind.CLOSED):
            session = self._cluster.session(told_number(unpack_json(body), "session"))
            if session is not None and kind == Kind.OPENED:
                session.opened_by(self._worker.name)
            elif session is not None:
                session.closed_by(self._worker.name)
        elif kind == Kind.REFUSED:
            self._refused(unpack_json(body))
        else:
            raise InvalidArgumentError(f"there are no messages of kind {kind}")

    def _refused(self, told: dict[str, object]) -> None:
        error = decode_error(told_object(told, "error") or {}, self._worker.name, lambda _: None, objects=False)
        if "session" in told:
            self._cluster.refused(self._worker, told_number(told, "session"), error)
        elif self._worker.link.connection is self._connection:
            self._worker.lose(error)

    def on_tensor(self, step_id: int, key: str, value: object, is_dead: bool) -> None:
        session = self._cluster.session(session_of(step_id))
        if session is not None:
            session.arrive(step_id, key, value, is_dead)

    def on_bad_tensor(self, step_id: int, key: str, error: OpError) -> None:
        session = self._cluster.session(session_of(step_id))
        if session is not None:
            message = f"{self._worker.name} sent for {key}: {error.message}"
            session.refuse(step_id, InvalidArgumentError(message))

    def on_lost(self, error: OpError) -> None:
        if not self._status.done():
            self._status.set_exception(error)
        elif self._worker.link.connection is self._connection:
            self._worker.lose(error)
