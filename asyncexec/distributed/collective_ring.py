"""Ring: the collectives of large values, as one of their members does them with the others.

After ``ring_reducer.cc``, ``ring_gatherer.cc`` and ``hierarchical_tree_broadcaster.cc`` in
``tensorflow/core/common_runtime``.  The members are a ring, in the order of their ranks.  A value has as many chunks as
there are members.  Chunk *c* starts at rank *c*, and each member that it passes adds its own: after a round of
``size - 1`` steps each member has one chunk that is complete, and after a second round all of them.  So each member
sends twice the bytes of its value, whatever the number of members, and the order of additions depends on the ranks
alone: results are the same in each run, and on each member.

A broadcast goes down a binary tree, whose root is the member that has the value.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from asyncexec.distributed.collective_calls import Plan, check_value
from asyncexec.framework.rendezvous import NO_ARGS, Received, RendezvousArgs, create_key
from asyncexec.rendezvous.collective_instances import Operation, finished, merged

# Calls a function, off the event loop if so many bytes make that worth it.
Compute: TypeAlias = Callable[..., Awaitable[Any]]


class Meeting(Protocol):
    """The part of a rendezvous that a Ring needs."""

    def send(self, key: str, value: object) -> None: ...

    async def recv(self, key: str, args: RendezvousArgs = NO_ARGS) -> Received: ...


class Ring:
    """One member of a collective.

    Args:
        rendezvous: that of the step, in the process of the member.
        plan: of the collective.
        device: that of the member.
        operation: what all of them do.
        compute: ``await compute(num_bytes, function, *args)`` calls a function.
    """

    def __init__(self, rendezvous: Meeting, plan: Plan, device: str, operation: Operation, compute: Compute) -> None:
        self._rendezvous = rendezvous
        self._plan = plan
        self._operation = operation
        self._compute = compute
        self._size = len(plan.devices)
        self._rank = plan.devices.index(device)

    async def all_reduce(self, value: object) -> object:
        """The values of all members merged."""
        chunks = self._chunks(value)
        chunk = await self._reduce_scatter(chunks, self._rank)
        return await self._joined(await self._all_gather(self._last_chunk, chunk, [each.shape for each in chunks]))

    async def reduce(self, value: object) -> object:
        """The same for the root; None for the others."""
        chunks = self._chunks(value)
        chunk = await self._reduce_scatter(chunks, self._rank)
        if self._rank != self._plan.source:
            self._send(self._plan.source, "root", chunk)
            return None
        chunks[self._last_chunk] = chunk
        for rank in range(self._size):
            if rank != self._rank:
                index = (rank + 1) % self._size
                chunks[index] = await self._recv(rank, "root", chunks[index].shape)
        return await self._joined(chunks)

    async def reduce_scatter(self, value: object) -> object:
        """The piece of this member's rank of the merged values."""
        chunk = await self._reduce_scatter(self._chunks(value), (self._rank - 1) % self._size)
        rows = self._operation.shape[0] // self._size
        return await self._compute(chunk.nbytes, np.array, chunk.reshape(rows, *self._operation.shape[1:]))

    async def all_to_all(self, value: Any) -> object:
        """The rows of this member's rank of the values of all."""
        rows: list[object] = [value[self._rank]] * self._size
        for distance in range(1, self._size):  # each sends to another one at a time
            self._send(self._rank + distance, "row", value[(self._rank + distance) % self._size])
        for distance in range(1, self._size):
            source = (self._rank - distance) % self._size
            rows[source] = await self._recv(source, "row", self._operation.shape[1:])
        return await self._compute(self._operation.num_bytes, np.stack, rows)

    async def gather(self, value: Any) -> Any:
        """The values of all members, one after another along the first dimension."""
        return await self._joined(await self._all_gather(self._rank, value, [value.shape] * self._size))

    async def broadcast(self, value: Any) -> object:
        """The value of the source, which alone gives one."""
        place = (self._rank - self._plan.source) % self._size  # in the tree
        if place > 0:
            value = await self._recv(self._at((place - 1) // 2), "tree", self._operation.shape)
        for child in (2 * place + 1, 2 * place + 2):
            if child < self._size:
                self._send(self._at(child), "tree", value)
        return value if place == 0 else await self._compute(value.nbytes, value.copy)

    @property
    def _last_chunk(self) -> int:
        """The number of the chunk that this member is the last to add to."""
        return (self._rank + 1) % self._size

    def _at(self, place: int) -> int:
        return (place + self._plan.source) % self._size

    def _chunks(self, value: Any) -> list[Any]:
        return np.array_split(np.reshape(value, -1), self._size)

    async def _reduce_scatter(self, chunks: list[Any], first: int) -> Any:
        """The last of *chunks* that this member adds to, complete: the one after *first*, around the ring."""
        current = chunks[first]
        for step in range(self._size - 1):
            self._send(self._rank + 1, f"reduce {step}", current)
            own = chunks[(first - step - 1) % self._size]
            came = await self._recv(self._rank - 1, f"reduce {step}", own.shape)
            current = await self._compute(2 * own.nbytes, merged, self._operation, came, own)
        return await self._compute(current.nbytes, finished, self._operation, current, self._size)

    async def _all_gather(self, index: int, piece: object, shapes: list[tuple[int, ...]]) -> list[object]:
        """The pieces of all members, of which this one has *piece*, the one at *index*."""
        pieces: list[object] = [None] * self._size
        pieces[index] = piece
        for step in range(self._size - 1):
            self._send(self._rank + 1, f"gather {step}", pieces[(index - step) % self._size])
            next_index = (index - step - 1) % self._size
            pieces[next_index] = await self._recv(self._rank - 1, f"gather {step}", shapes[next_index])
        return pieces

    async def _joined(self, pieces: list[object]) -> object:
        """One array of *pieces*, which others may have too: a copy in any case."""
        found = await self._compute(self._operation.num_bytes, np.concatenate, pieces)
        return found.reshape(self._operation.shape)

    def _send(self, rank: int, step: str, value: object) -> None:
        self._rendezvous.send(self._key(self._rank, rank % self._size, step), value)

    async def _recv(self, rank: int, step: str, shape: tuple[int, ...]) -> Any:
        key = self._key(rank % self._size, self._rank, step)
        value, _, _ = await self._rendezvous.recv(key)
        check_value(value, self._operation.dtype, shape, key)
        return value

    def _key(self, source: int, destination: int, step: str) -> str:
        devices = self._plan.devices
        return create_key(devices[source], 0, devices[destination], f"collective {self._plan.number} {step}")
