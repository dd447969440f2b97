"""Collectives: what the devices of a group do together, each with a value of its own.  Here are their words.

After ``tensorflow/core/framework/collective.h``.  A group key names a set of devices, an instance key one collective
among them; every member gives both, and the size of the group.  The ranks of a group are its devices, in the order of
their names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

from asyncexec.framework.errors import OpError
from asyncexec.framework.types import DType

MergeOp: TypeAlias = Literal["Add", "Mul", "Min", "Max"]
FinalOp: TypeAlias = Literal["Id", "Div"]
MERGE_OPS: Final = get_args(MergeOp)
FINAL_OPS: Final = get_args(FinalOp)
OPS_PREFIX: Final = "Collective"  # what the names of collective ops begin with


@dataclass(frozen=True, slots=True)
class CollectiveMember:
    """One device's part in one collective."""

    device: str
    group_key: int
    instance_key: int
    group_size: int
    timeout_s: float = 0.0  # how long it waits for the others; 0: as long as it takes
    node: str = ""  # that takes part


@dataclass(frozen=True, slots=True)
class CollectiveStatistics:
    """What a CollectiveExecutor holds now."""

    num_groups: int
    num_instances: int  # begun, with members missing
    num_waiters: int


class CollectiveExecutor(Protocol):
    """The collectives of one step.  Each call waits until all members of the group have come.

    Raises, for every member, once one gives what does not fit the others, is cancelled or runs out of time, and for
    every later call: the error of that member, for the others marked as derived.  What a call returns belongs to the
    caller.
    """

    async def all_reduce(self, member: CollectiveMember, value: Any, merge_op: MergeOp, final_op: FinalOp) -> Any:
        """The values of all members merged, in the order of the ranks; with ``Div``, divided by the group's size."""
        ...

    async def reduce(
        self, member: CollectiveMember, value: Any, merge_op: MergeOp, final_op: FinalOp, *, is_root: bool
    ) -> Any:
        """The same for the one member that is the root; None for the others."""
        ...

    async def reduce_scatter(self, member: CollectiveMember, value: Any, merge_op: MergeOp, final_op: FinalOp) -> Any:
        """The values of all members merged: of as many pieces as there are members, the one of this member's rank."""
        ...

    async def all_to_all(self, member: CollectiveMember, value: Any) -> Any:
        """Of the value of each member, the row of this member's rank, in the order of the ranks."""
        ...

    async def gather(self, member: CollectiveMember, value: Any) -> Any:
        """The values of all members one after another along the first dimension, in the order of the ranks."""
        ...

    async def broadcast_send(self, member: CollectiveMember, value: Any) -> Any:
        """*value*, once every member has come and gets it."""
        ...

    async def broadcast_recv(self, member: CollectiveMember, dtype: DType, shape: Sequence[int]) -> Any:
        """The value of the one member that sends."""
        ...

    def start_abort(self, error: OpError) -> None:
        """Wake every member with *error*, and refuse what comes later with it; the first abort's error stays."""
        ...

    def stuck(self) -> Sequence[CollectiveMember]:
        """The members that wait, without a timeout, until others come."""
        ...

    def on_wait(self, call: Callable[[], None] | None) -> None:
        """Have *call*, and no other any more, called whenever a member begins to wait."""
        ...

    def statistics(self) -> CollectiveStatistics: ...
