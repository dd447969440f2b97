"""What members of a cluster's collectives and their leader say to each other, as values of the step's rendezvous.

A member tells the leader of its call, with its value if that is small.  The answer is the result itself, or text: the
plan of a collective that the members do among themselves, an error, or nothing for who gets no value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from asyncexec.distributed.cluster_spec import CLIENT_JOB, worker_name
from asyncexec.distributed.messages import pack_json, unpack_json
from asyncexec.framework.collective import FINAL_OPS, MERGE_OPS, CollectiveMember
from asyncexec.framework.errors import InternalError, InvalidArgumentError, OpError, error_class
from asyncexec.framework.rendezvous import create_key
from asyncexec.framework.tensor_codec import COPIED_BYTES
from asyncexec.framework.types import as_dtype
from asyncexec.rendezvous.collective_instances import Operation, check_pieces

LEADER: Final = worker_name(CLIENT_JOB, 0)
# Bytes of the results of all members up to which the leader merges the values: that takes fewer messages than a ring.
_LED_BYTES: Final = 2**18
_ANY_DEVICE: Final = "/device:CPU:0"
_KINDS: Final = ("all-reduce", "reduce", "reduce-scatter", "all-to-all", "gather", "broadcast")


@dataclass(frozen=True, slots=True)
class Call:
    """One member's call.

    Attributes:
        number: of the call, among those of its process in the step.
        is_source: whether it broadcasts, or is the root of a reduction.
    """

    number: int
    member: CollectiveMember
    operation: Operation
    is_source: bool

    @property
    def is_led(self) -> bool:
        """Whether the leader merges the values."""
        # What is copied when it is sent keeps its order, and so do the calls of a device on an instance.
        num_bytes = self.operation.num_bytes
        return num_bytes <= COPIED_BYTES and num_bytes * self.member.group_size <= _LED_BYTES

    @property
    def has_value(self) -> bool:
        """Whether the member sends a value to the leader."""
        return self.is_led and (self.operation.kind != "broadcast" or self.is_source)

    @property
    def value_shape(self) -> tuple[int, ...]:
        """The shape of what the member brings."""
        shape = self.operation.shape
        return (shape[0] // self.member.group_size, *shape[1:]) if self.operation.kind == "gather" else shape

    def pack(self) -> bytes:
        member, operation = self.member, self.operation
        return pack_json(
            {
                "number": self.number,
                "device": member.device,
                "group": member.group_key,
                "instance": member.instance_key,
                "size": member.group_size,
                "timeout": member.timeout_s,
                "node": member.node,
                "kind": operation.kind,
                "dtype": as_dtype(operation.dtype).name,
                "shape": operation.shape,
                "merge": operation.merge_op,
                "final": operation.final_op,
                "source": self.is_source,
            }
        )


def unpack_call(body: bytes) -> Call:
    """The call that *body* tells of; InvalidArgumentError when it is none."""
    told = unpack_json(body)
    try:
        call = Call(
            int(told["number"]),
            CollectiveMember(
                str(told["device"]),
                int(told["group"]),
                int(told["instance"]),
                int(told["size"]),
                float(told["timeout"]),
                str(told["node"]),
            ),
            Operation(
                str(told["kind"]),
                as_dtype(str(told["dtype"])).as_numpy_dtype,
                tuple(map(int, told["shape"])),
                told["merge"],
                told["final"],
            ),
            bool(told["source"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"the call of a collective is malformed: {error!r}") from None
    operation = call.operation
    if operation.kind not in _KINDS or operation.merge_op not in MERGE_OPS or operation.final_op not in FINAL_OPS:
        raise InvalidArgumentError(f"there is no such collective: {operation}")
    if operation.kind == "gather" and not operation.shape:
        raise InvalidArgumentError(f"what is gathered has a first dimension: {operation}")
    check_pieces(operation, call.member.group_size)
    return call


@dataclass(frozen=True, slots=True)
class Plan:
    """How the members do a collective among themselves.

    Attributes:
        number: of the collective, in the step.
        devices: the members, in the order of their ranks.
        source: the rank of the one that broadcasts, or is the root of a reduction.
    """

    number: int
    devices: Sequence[str]
    source: int = 0

    def pack(self) -> bytes:
        return pack_json({"number": self.number, "devices": list(self.devices), "source": self.source})


NO_VALUE: Final = pack_json({})


def pack_failure(error: OpError) -> bytes:
    """The answer to a call that does not fit."""
    return pack_json({"code": int(error.code), "message": error.message, "hint": error.hint})


def unpack_answer(body: bytes) -> Plan | None:
    """The plan in an answer that is no value; None where there is none.

    Raises:
        OpError: what the leader found wrong with the call.
    """
    told = unpack_json(body)
    if "code" in told:
        raise error_class(int(told["code"]))(str(told["message"]), hint=told["hint"])
    return Plan(told["number"], told["devices"], told["source"]) if told else None


def call_key(space: str) -> str:
    """Where the calls of a process come."""
    return _key(space, LEADER, "collective call")


def value_key(space: str, number: int) -> str:
    """Where the value of a call comes."""
    return _key(space, LEADER, f"collective value {number}")


def answer_key(space: str, number: int) -> str:
    """Where the answer to a call comes."""
    return _key(LEADER, space, f"collective answer {number}")


def _key(source: str, destination: str, edge: str) -> str:
    return create_key(source + _ANY_DEVICE, 0, destination + _ANY_DEVICE, edge)


def check_value(value: object, dtype: object, shape: tuple[int, ...], key: str) -> None:
    """InternalError unless a member has sent what the plan wants."""
    found = getattr(value, "dtype", type(value).__name__), getattr(value, "shape", ())
    if found != (dtype, shape):
        raise InternalError(
            f"a collective got {found[0]} of shape {list(found[1])} where {dtype} of shape {list(shape)} was expected",
            hint=f"it came on {key}",
        )
