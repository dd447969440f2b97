"""ClusterCollectiveExecutor: the collectives of one step whose members are in several processes.

A call goes to the leader (collective_leader.py).  Small values are merged there, in the order of the ranks.  Members
of large ones hear from it who they are, and do the rest among themselves (collective_ring.py).  All of that goes by the
rendezvous of the step, and so ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncexec.distributed.collective_calls import Call, Plan, answer_key, call_key, unpack_answer, value_key
from asyncexec.distributed.collective_leader import CollectiveLeader
from asyncexec.distributed.collective_ring import Ring
from asyncexec.framework.collective import CollectiveMember, CollectiveStatistics, FinalOp, MergeOp
from asyncexec.framework.derived import make_derived
from asyncexec.framework.errors import CancelledError, DeadlineExceededError, InternalError, OpError
from asyncexec.framework.rendezvous import RendezvousInterface
from asyncexec.framework.types import DType
from asyncexec.framework.under_way import tells
from asyncexec.rendezvous.collective_executor import OFFLOADED_SIZE, Offload
from asyncexec.rendezvous.collective_instances import Operation, exchanged, gathered, reduce_scattered


class ClusterCollectiveExecutor:
    """See the head of this module.

    Args:
        rendezvous: that of the step, in this process.
        space: the name of this process.
        offload: keeps the merging of large values out of the event loop.
        leader: that of the step, if it is in this process.

    Attributes:
        leader: the same.
    """

    __slots__ = ("_last_call", "_offload", "_on_wait", "_rendezvous", "_space", "_waiting", "leader")

    def __init__(
        self, rendezvous: RendezvousInterface, space: str, offload: Offload, leader: CollectiveLeader | None = None
    ) -> None:
        self._rendezvous = rendezvous
        self._space = space
        self._offload = offload
        self.leader = leader
        self._on_wait: Callable[[], None] | None = None
        self._waiting: dict[int, CollectiveMember] = {}  # by the number of the call
        self._last_call = 0

    async def all_reduce(self, member: CollectiveMember, value: Any, merge_op: MergeOp, final_op: FinalOp) -> object:
        """The values of all members merged: small ones in the order of the ranks, large ones as a ring does it."""
        operation = Operation("all-reduce", value.dtype, np.shape(value), merge_op, final_op)
        return await self._take_part(member, operation, value)

    async def reduce(
        self, member: CollectiveMember, value: Any, merge_op: MergeOp, final_op: FinalOp, *, is_root: bool
    ) -> object:
        """The same for the root; None for the others."""
        operation = Operation("reduce", value.dtype, np.shape(value), merge_op, final_op)
        return await self._take_part(member, operation, value, is_source=is_root)

    async def gather(self, member: CollectiveMember, value: object) -> Any:
        """The values of all members along the first dimension."""
        return await self._take_part(member, gathered(member, value), value)

    async def reduce_scatter(
        self, member: CollectiveMember, value: object, merge_op: MergeOp, final_op: FinalOp
    ) -> object:
        """The piece of this member's rank of the merged values."""
        return await self._take_part(member, reduce_scattered(member, value, merge_op, final_op), value)

    async def all_to_all(self, member: CollectiveMember, value: object) -> object:
        """The rows of this member's rank of the values of all."""
        return await self._take_part(member, exchanged(member, value), value)

    async def broadcast_send(self, member: CollectiveMember, value: Any) -> object:
        """*value*, once every member has come."""
        operation = Operation("broadcast", value.dtype, np.shape(value))
        return await self._take_part(member, operation, value, is_source=True)

    async def broadcast_recv(self, member: CollectiveMember, dtype: DType, shape: Sequence[int]) -> object:
        """The value of the member that sends."""
        operation = Operation("broadcast", dtype.as_numpy_dtype, tuple(map(int, shape)))
        return await self._take_part(member, operation, None)

    def start_abort(self, error: OpError) -> None:
        """Wake every member of this process with *error*, and refuse what comes later."""
        self._rendezvous.start_abort(error)

    def stuck(self) -> list[CollectiveMember]:
        """The members that wait, without a timeout, until others come, where that is known."""
        return [] if self.leader is None else self.leader.stuck()

    def on_wait(self, call: Callable[[], None] | None) -> None:
        """Have *call*, and no other any more, called whenever a member begins to wait."""
        self._on_wait = call

    def statistics(self) -> CollectiveStatistics:
        """In how many groups and instances members of this process wait, and how many."""
        waiting = self._waiting.values()
        instances = {(member.group_key, member.instance_key) for member in waiting}
        return CollectiveStatistics(len({group for group, _ in instances}), len(instances), len(waiting))

    @tells(lambda _: "waited for the other members of its group")
    async def _take_part(
        self, member: CollectiveMember, operation: Operation, value: object, *, is_source: bool = False
    ) -> object:
        if self._rendezvous.error is not None:
            raise make_derived(self._rendezvous.error)
        self._last_call += 1
        call = Call(self._last_call, member, operation, is_source)
        try:
            async with asyncio.timeout(member.timeout_s if member.timeout_s > 0 else None):
                plan, result = await self._ask(call, value)
                return result if plan is None else await self._run(plan, call, value)
        except asyncio.CancelledError:
            self.start_abort(CancelledError(f"a collective was cancelled on {member.device}"))
            raise
        except TimeoutError as error:
            if isinstance(error, OpError):  # of another member
                raise
            raise DeadlineExceededError("Collective has timed out waiting for other workers.") from None

    async def _ask(self, call: Call, value: object) -> tuple[Plan | None, Any]:
        """What the leader answers: a plan, or the result."""
        rendezvous = self._rendezvous
        if call.has_value:
            rendezvous.send(value_key(self._space, call.number), value)
        rendezvous.send(call_key(self._space), call.pack())
        self._waiting[call.number] = call.member
        if self._on_wait is not None:
            self._on_wait()
        try:
            answer, _, _ = await rendezvous.recv(answer_key(self._space, call.number))
        finally:
            del self._waiting[call.number]
        if not isinstance(answer, bytes):
            return None, answer
        has_it = call.operation.kind == "broadcast"  # what it has sent is the result
        return unpack_answer(answer), value if has_it else None

    async def _run(self, plan: Plan, call: Call, value: object) -> Any:
        async def compute(num_bytes: int, function: Callable[..., Any], *args: object) -> object:
            if num_bytes < OFFLOADED_SIZE:
                return function(*args)
            return await self._offload(function, args, call.member.node)

        ring = Ring(self._rendezvous, plan, call.member.device, call.operation, compute)
        match call.operation.kind:
            case "all-reduce":
                return await ring.all_reduce(value)
            case "reduce":
                return await ring.reduce(value)
            case "reduce-scatter":
                return await ring.reduce_scatter(value)
            case "all-to-all":
                return await ring.all_to_all(value)
            case "gather":
                return await ring.gather(value)
            case "broadcast":
                return await ring.broadcast(value)
        raise InternalError(f"there is no collective {call.operation.kind}")
