"""What the driver of a stream does for items that have states by key."""

from __future__ import annotations

from collections.abc import Sequence

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.executor.engine.step_scope import StepScope
from asyncexec.executor.streams.key_table import KeyedSlot, KeyTable, Visit
from asyncexec.executor.streams.stream_cuts import Carrier
from asyncexec.executor.streams.stream_item import StateCell, StateSlot, StreamItem
from asyncexec.framework.errors import InvalidArgumentError, OpError


def cells_around(
    item: StreamItem, slots: Sequence[StateSlot], carriers: list[Carrier]
) -> tuple[list[StateCell], list[StateCell]]:
    """The cells before and behind *item*, which waits in the queues of states by key; *carriers* are behind it then."""
    read: list[StateCell] = []
    written: list[StateCell] = []
    visits: list[tuple[KeyedSlot, Visit]] = []
    for number, (slot, carrier) in enumerate(zip(slots, carriers, strict=True)):
        if isinstance(carrier, KeyTable):
            assert isinstance(slot, KeyedSlot)
            visit = carrier.visit(item)
            visits.append((slot, visit))
            read.append(visit.before)
            written.append(visit.behind)
        else:
            behind = carriers[number] = StateCell()
            read.append(carrier)
            written.append(behind)
    item.visits = visits
    return read, written


def tell_keys(item: StreamItem, step: StepScope) -> None:
    """Let tables know the keys of *item* that *step* has computed by now."""
    values = step.fetched()
    rest: list[tuple[KeyedSlot, Visit]] = []
    for slot, visit in item.visits:
        key, time = values[slot.key], None if slot.time is None else values[slot.time]
        if key is NOTHING or time is NOTHING:
            rest.append((slot, visit))
            continue
        try:
            visit.table.tell(visit, key, time)
        except OpError as error:
            rest.append((slot, visit))
            step.abort(error)
    item.visits = rest


def has_no_key(item: StreamItem, step: StepScope) -> bool:
    """Whether *item* waits for a key that does not come: it is on a branch that is not taken, or has failed."""
    return bool(item.visits) and item.num_awaited == len(item.visits) and not (step.is_waiting or step.has_ready)


def no_key(item: StreamItem) -> InvalidArgumentError:
    """The error of such an item."""
    name = item.visits[0][0].name
    return InvalidArgumentError(
        f"state {name!r} has no key: it is on a branch that is not taken", hint="compute the key outside of branches"
    )
