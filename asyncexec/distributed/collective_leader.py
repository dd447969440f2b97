"""CollectiveLeader: where the members of a cluster's collectives come to know each other.

After ``tensorflow/core/distributed_runtime/collective_param_resolver_distributed.cc``, whose leader is a worker.  Here
it is the process of the session: that one has a way to every worker, and ends the step when one of them fails.  It
is told of every call, checks that the calls fit, and answers when all members of the group have come.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from asyncexec.distributed.collective_calls import (
    NO_VALUE,
    Call,
    Plan,
    answer_key,
    call_key,
    check_value,
    pack_failure,
    unpack_call,
    value_key,
)
from asyncexec.framework.collective import CollectiveMember
from asyncexec.framework.errors import InvalidArgumentError, OpError
from asyncexec.framework.rendezvous import NO_ARGS, Received, RendezvousInterface, RendezvousWaiter
from asyncexec.rendezvous.collective_instances import CollectiveInstances, Instance, Part, results, source_rank


class CollectiveLeader:
    """The leader of one step's collectives.

    A call that does not fit is answered with its error, and ends the step by that; the other members are not told
    here, so that the error of the step is that of the call.

    Args:
        rendezvous: that of the step, in the process of the session.
        fail: ends the step, where a process says what cannot be.
    """

    def __init__(self, rendezvous: RendezvousInterface, fail: Callable[[OpError], None]) -> None:
        self._rendezvous = rendezvous
        self._fail = fail
        self._instances = CollectiveInstances()
        self._waiters: dict[str, RendezvousWaiter] = {}  # by key
        self._last_plan = 0

    def listen(self, space: str) -> None:
        """Take the calls of the members in the process *space*."""
        self._recv(call_key(space), partial(self._take_call, space))

    def stuck(self) -> list[CollectiveMember]:
        """The members, of all processes, that wait without a timeout until others come."""
        return self._instances.stuck()

    def close(self) -> None:
        """The step has ended."""
        for waiter in list(self._waiters.values()):
            waiter.cancel()
        self._instances.clear()

    def _recv(self, key: str, take: Callable[[Any], None]) -> None:
        def done(error: OpError | None, received: Received | None) -> None:
            self._waiters.pop(key, None)
            if received is not None:
                try:
                    take(received[0])
                except OpError as error:
                    self._fail(error)

        waiter = self._rendezvous.recv_async(key, NO_ARGS, done)
        if waiter is not None:
            self._waiters[key] = waiter

    def _take_call(self, space: str, body: object) -> None:
        self.listen(space)
        if not isinstance(body, bytes):
            raise InvalidArgumentError(f"{space} sent a call of a collective that is no text")
        call = unpack_call(body)
        if call.has_value:
            key = value_key(space, call.number)
            self._recv(key, partial(self._take_value, space, call, key))
        else:
            self._join(space, call, None)

    def _take_value(self, space: str, call: Call, key: str, value: object) -> None:
        check_value(value, call.operation.dtype, call.value_shape, key)
        self._join(space, call, value)

    def _join(self, space: str, call: Call, value: object) -> None:
        part = Part(call.member, value, call.is_source, partial(self._answer, space, call.number))
        try:
            instance = self._instances.join(call.operation, part)
            if instance is not None:
                self._complete(instance, is_led=call.is_led)
        except OpError as error:
            part.give(pack_failure(error))

    def _complete(self, instance: Instance, *, is_led: bool) -> None:
        operation, parts = instance.operation, instance.by_rank()
        if is_led:
            found = results(operation, parts)
        else:
            self._last_plan += 1
            source = source_rank(operation, parts) if operation.kind in ("broadcast", "reduce") else 0
            plan = Plan(self._last_plan, [part.member.device for part in parts], source)
            found = [plan.pack()] * len(parts)
        self._instances.remove(instance)
        for part, result in zip(parts, found, strict=True):
            has_it = operation.kind == "broadcast" and part.is_source
            part.give(NO_VALUE if is_led and (has_it or result is None) else result)

    def _answer(self, space: str, number: int, answer: object) -> None:
        try:
            self._rendezvous.send(answer_key(space, number), answer)
        except OpError as error:
            self._fail(error)
