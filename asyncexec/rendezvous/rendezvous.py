"""Rendezvous: the one that users make, to meet the Sends and Recvs of an executor."""

from __future__ import annotations

from asyncexec.framework.rendezvous import create_key, parse_key
from asyncexec.rendezvous.intra_process import IntraProcessRendezvous


class Rendezvous(IntraProcessRendezvous):
    """A table of values by key, where the nodes ``_Send`` and ``_Recv`` of a graph meet their caller.

    ``send(key, value)`` gives a value, and ``value, is_dead, _ = await recv(key)`` takes one; either may come first.
    What is sent on one key is received in the order of sending, each value once.  A key is anything hashable; that of
    a node is what ``create_key`` makes of its attrs.

    A value is a numpy array or scalar, ``bytes`` or, for dtype ``object``, any Python object, and travels as it is: its
    dtype is that of the node.  One that is in the memory of a device is copied to where the receiver wants it.  A dead
    value is None, and *is_dead* is True.

    ``start_abort(error)`` ends the rendezvous: receivers that wait, and all calls that follow, get a copy of *error*,
    an OpError.  An executor aborts it with the error of its step.  All calls are made in one event loop.
    """

    __slots__ = ()

    create_key = staticmethod(create_key)
    parse_key = staticmethod(parse_key)

    @property
    def has_in_flight(self) -> bool:
        """Whether a receiver waits: whoever holds the rendezvous may still send."""
        return bool(self._waiting) or super().has_in_flight
