"""What a stream needs of its session: the signature of its items, its states, and the sources it draws from."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.diagnostics.step_counts import StepCounts
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.streams.key_table import KeyedSlot
from asyncexec.executor.streams.stream_item import StateSlot
from asyncexec.executor.streams.stream_options import ItemRecords, StreamPlan
from asyncexec.executor.streams.stream_scope import StreamScope
from asyncexec.framework.cooperative import STRIDE, Stage, run_in_slices
from asyncexec.framework.errors import DataLossError, InvalidArgumentError, InvalidTypeError, OpError
from asyncexec.framework.held_content import Held
from asyncexec.framework.ownership import keeper
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.spans import Spans
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.frontend.convert import as_tensor_value
from asyncexec.frontend.stream_functions import values_of
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.placement.device_set import DeviceSet
from asyncexec.regions.clusters import KEYED, LATE
from asyncexec.session.admission import AdmissionControl, StreamAdmission
from asyncexec.session.durable_stream import DurableStream
from asyncexec.session.executors_and_keys import ExecutorsAndKeys, explained
from asyncexec.session.fetch_mapper import FetchMapper, element, structure_key
from asyncexec.session.function_call_frame import (
    detach_in_slices,
    detaching,
    fed_tensor,
    feed_converter,
    takes_lists,
    takes_long_to_detach,
)
from asyncexec.session.held_resources import gives_resource
from asyncexec.session.held_state import StateFinder
from asyncexec.session.large_feeds import MAX_ITEMS, is_large
from asyncexec.session.run_metadata import defer_step_stats
from asyncexec.session.workers import Workers

_LARGE_BYTES: Final = 2**18
_STREAM: Final = object()  # stands between feeds and states in the key of a signature


@dataclass(frozen=True, slots=True, eq=False)
class StreamHost:
    """What a stream needs of its session.

    Attributes:
        graph: the session's.
        prepare: gives the executor of a signature: its key, fetches, feeds, and the worker whose devices it prefers.
        run: gives the values of tensors.
        enter_loop: lets the running loop be the session's; FailedPreconditionError if another one is.
        admission: what the stream, and its items, are admitted by.
        begin, end: tell the session of a stream, which it aborts when it is closed.
        slice_ns: how long the event loop may be held; holds: is told how long it was.
        source_grace_s: seconds that what draws from a source has to end once it is cancelled.
        counts: is told of items that have ended.
        spans: makes those of streams and items.
        devices: those of the session; workers: what of them is in other processes.
        state_finder: tells which signatures have state.
        resources: variables, tables and queues of the session.
        schedule_seed: what the order of ready nodes is drawn from, if anything.
        record: what records the items of a signature that fail, where they are recorded.
    """

    graph: Graph
    prepare: Callable[[Any, FetchMapper, Sequence[Any], str | None], Awaitable[ExecutorsAndKeys]]
    run: Callable[[Any], Awaitable[Any]]
    enter_loop: Callable[[], None]
    admission: AdmissionControl
    begin: Callable[[StreamScope], None]
    end: Callable[[StreamScope], None]
    slice_ns: int
    source_grace_s: float | None
    holds: LoopHolds
    counts: StepCounts
    spans: Spans
    devices: DeviceSet
    workers: Workers | None
    state_finder: StateFinder
    resources: ResourceMgr
    schedule_seed: int | None
    record: Callable[[ExecutorsAndKeys], ItemRecords] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StreamNodes:
    """The nodes of a graph that fetches depend on and that only a stream knows what to do with.

    Attributes:
        states: the tensor that reads each state, and the one that writes it.
        sources: tensors that have their own source.
        nodes: all that the fetches, and what is written to the states, depend on.
    """

    states: tuple[tuple[Tensor, Tensor], ...]
    sources: tuple[Tensor, ...]
    nodes: tuple[Node, ...]


def find_stream_nodes(graph: Graph, fetches: Sequence[Node], fed: frozenset[Node]) -> Stage[StreamNodes]:
    """What *fetches*, and what is written to the states among it, depend on, as a stage; *fed* nodes need nothing."""
    nodes = list(graph.operations)
    writes = {node.inputs[0].op: node for node in nodes if node.op == "StreamStateWrite"}
    states: list[tuple[Tensor, Tensor]] = []
    sources: list[Tensor] = []
    seen = set(fed)
    reached: list[Node] = []
    ahead = list(fetches)
    while ahead:
        for _ in range(min(STRIDE, len(ahead))):
            node = ahead.pop()
            if node in seen:
                continue
            seen.add(node)
            reached.append(node)
            if node.op in LATE and node in writes:
                states.append((node.outputs[0], writes[node].outputs[0]))
                ahead.append(writes[node])
                ahead += [tensor.op for tensor in node.inputs[1:]]  # the key, and the time
                continue
            if node.op == "StreamSource" and values_of(node) is not None:
                sources.append(node.outputs[0])
            ahead += [tensor.op for tensor in node.inputs]
            ahead += node.control_inputs
        yield
    sources.sort(key=lambda tensor: tensor.op.id)
    states.sort(key=lambda state: state[0].op.id)
    return StreamNodes(tuple(states), tuple(sources), tuple(reached))


async def stream_nodes(host: StreamHost, fetches: object, feed_keys: Sequence[object] = ()) -> StreamNodes:
    """``find_stream_nodes`` of a nest of fetches."""
    graph = host.graph
    mapper = FetchMapper(graph, fetches)
    wanted = [*mapper.targets, *(tensor.op for tensor in mapper.tensors)]
    fed = frozenset(
        found.op for key in feed_keys if isinstance(found := element(graph, key, "feed"), Tensor) and not found.index
    )
    return await run_in_slices(find_stream_nodes(graph, wanted, fed), host.holds.clock)


class StreamTrace(NamedTuple):
    """What is told of the items of a stream, and what gathers it."""

    metadata: RunMetadata
    collector: StepStatsCollector


async def _kept(keep: Callable[[Any], object], value: object) -> object:
    """What *keep* makes of *value*; on a thread where that may be a large copy."""
    is_large = getattr(value, "nbytes", 0) > _LARGE_BYTES
    return await asyncio.to_thread(keep, value) if is_large else keep(value)


async def open_plan(
    host: StreamHost,
    admission: StreamAdmission,
    fetches: object,
    trace: StreamTrace | None,
    durable: DurableStream | None,
    first: object,
) -> StreamPlan:
    """The plan of a stream, let in by *admission*, whose first item feeds *first*."""
    keys = tuple(checked_mapping(first))
    nodes = await stream_nodes(host, fetches, keys)
    reads = [read for read, _ in nodes.states]
    kept = None if durable is None else durable.states
    computed = [read for read in reads if kept is None or read.op.op == KEYED]
    found: Sequence[object] = []
    if computed:
        found = await admission.run(lambda: host.run([read.op.inputs[0] for read in computed]))
    initial = dict(zip(computed, found, strict=True))
    mapper = FetchMapper(host.graph, fetches)
    num_fetches = len(mapper.tensors)
    positions = [mapper.position_of(written) for _, written in nodes.states]
    keyed = [_key_positions(mapper, read.op) for read in reads]
    signature = (structure_key(fetches), *keys, _STREAM, *reads)
    prepared = await host.prepare(signature, mapper, (*keys, *reads), None)
    fetched = replace(
        prepared,
        givers=tuple(each for each in prepared.givers if each[0] < num_fetches),
        scalars=tuple(i for i in prepared.scalars if i < num_fetches),
    )
    if trace is not None:
        device_of = await run_in_slices(prepared.graph.node_devices(), host.holds.clock)
        defer_step_stats(trace.metadata, trace.collector, device_of)
    slots: list[StateSlot] = []
    for read, (key, *time), position in zip(reads, keyed, positions, strict=True):
        keep = keeper(read.dtype)
        if read in initial:
            value = await _kept(keep, as_tensor_value(initial[read], read.dtype.base_dtype)[0])
        else:
            assert durable is not None
            value = await _kept(keep, durable.state_of(read.op.name))
        slot = StateSlot(len(keys) + len(slots), position, value)
        held = None if durable is None or kept is None or key is None else durable.state_of(read.op.name)
        slots.append(slot if key is None else _keyed_slot(slot, read.op, key, time, held))
    if durable is not None:
        makers = [node for node in nodes.nodes if gives_resource(node)]
        if makers:
            await admission.run(lambda: host.run(makers))
        durable.attach([read.op.name for read in reads], nodes.nodes)
    return StreamPlan(
        prepared.executor,
        prepared.tier,
        converter(keys, prepared),
        prepared.result if not slots else lambda values: fetched.result(values[:num_fetches]),
        lambda error: explained(error, prepared),
        host.holds,
        host.counts,
        tuple(slots),
        host.spans if host.spans.hooks or prepared.tells_step else None,
        None if trace is None else trace.collector,
        letter=letter_maker(host.graph, keys),
        has_keys=any(isinstance(slot, KeyedSlot) for slot in slots),
        records=None if host.record is None or trace is not None else host.record(prepared),
    )


def _key_positions(mapper: FetchMapper, read: Node) -> list[int | None]:
    """Where the key, and the time, of a state are among the fetches; None where it has no keys."""
    return [mapper.position_of(tensor) for tensor in read.inputs[1:]] if read.op == KEYED else [None]


def _keyed_slot(slot: StateSlot, read: Node, key: int, time: Sequence[int | None], held: object) -> KeyedSlot:
    if not (held is None or isinstance(held, Held)):
        raise DataLossError(f"the checkpoint has no keys of state {read.name!r}")
    return KeyedSlot(
        slot.feed,
        slot.fetch,
        slot.initial,
        key,
        time[0] if time else None,
        read.attrs["expiry"] or None,
        read.attrs["max_keys"],
        held,
        read.name,
    )


def snapshot(feeds: object) -> Any:
    """*feeds* as they are now: whoever gave them may change the mapping as soon as it is read.

    What is no mapping, or cannot be read, is given back as it is: the error is that of its item.
    """
    if type(feeds) is dict:
        return feeds.copy()
    if isinstance(feeds, Mapping):
        with suppress(Exception):
            return dict(feeds)
    return feeds


def may_be_large(graph: Graph, feeds: Any) -> bool:
    """Whether items that feed what *feeds* does can have values that take long to convert."""
    try:
        tensors = [fed_tensor(graph, key) for key in feeds]
    except (OpError, TypeError):
        return False  # there will be no items
    return any(_is_converted(tensor) and not _is_small(tensor.shape) for tensor in tensors)


def _is_converted(tensor: Tensor) -> bool:
    return not tensor.dtype.base_dtype.is_opaque or takes_lists(tensor)


def _is_small(shape: TensorShape) -> bool:
    size = shape.num_elements
    return size is not None and size <= MAX_ITEMS


def has_large(feeds: object) -> bool:
    """Whether some of *feeds*, a dict, may take long to convert."""
    if type(feeds) is dict:
        for value in feeds.values():
            kind = type(value)
            if kind is np.ndarray:
                if value.nbytes > MAX_ITEMS and is_large(value, None):
                    return True
            elif (kind is list or kind is tuple) and is_large(value, None):
                return True
    return False


def large_items(graph: Graph, feeds: Any) -> Callable[[Any], bool] | None:
    """What tells whether an item that feeds what *feeds* does takes long to convert; None if none can."""
    if not may_be_large(graph, feeds):
        return None
    tensors = {key: fed_tensor(graph, key) for key in feeds}
    keys = [(key, tensor.dtype.base_dtype) for key, tensor in tensors.items() if _is_converted(tensor)]

    def is_large_item(item: object) -> bool:
        return isinstance(item, dict) and any(takes_long_to_detach(item.get(key), dtype) for key, dtype in keys)

    return is_large_item


async def with_large_converted(host: StreamHost, feeds: Mapping[object, object]) -> Mapping[Any, Any]:
    """*feeds*, in which what is large has been converted in slices; what cannot be is left for its item to tell."""
    converted = dict(feeds)
    for key, value in feeds.items():
        if is_large(value, None):
            with suppress(OpError):
                tensor = fed_tensor(host.graph, key)
                stage = detach_in_slices(tensor, feed_converter(tensor), value)
                converted[key] = await run_in_slices(stage, host.holds.clock)
    return converted


def checked_mapping(feeds: object) -> Mapping[Any, Any]:
    if not isinstance(feeds, Mapping):
        raise InvalidTypeError(f"an item is a mapping of tensors to values, not {type(feeds).__name__} {feeds!r}")
    return feeds


def converter(keys: tuple[object, ...], prepared: ExecutorsAndKeys) -> Callable[[Any], list[Any]]:
    """A function from what was sent to the values of *keys* as they travel along edges.

    Who sent them may change them afterwards: an item is under way for longer than the call that sends it.
    """
    converters = map(detaching, prepared.feeds[: len(keys)], prepared.converters)
    pairs = list(zip(keys, converters, strict=True))
    count = len(pairs)
    if count == 1:
        ((only_key, convert_only),) = pairs

        def gather(feeds: Any) -> list[Any]:
            return [convert_only(feeds[only_key])]
    else:

        def gather(feeds: Any) -> list[Any]:
            return [convert(feeds[key]) for key, convert in pairs]

    def convert_all(feeds: Any) -> list[object]:
        try:
            if len(feeds) == count:
                return gather(feeds)
        except (TypeError, LookupError) as error:
            if isinstance(error, OpError):
                raise
        raise InvalidArgumentError(
            f"it feeds {_shown(checked_mapping(feeds))}, but the items before feed {_shown(keys)}",
            hint="all items of a stream feed the same tensors, under the same keys",
        )

    return convert_all


def letter_maker(graph: Graph, keys: Iterable[object]) -> Callable[[Any, Any], Any]:
    """Makes what is told of an item of what was sent, and of its values for *keys*, or why there are none."""
    names = [fed_tensor(graph, key).name for key in keys]

    def make(sent: object, values: object) -> Any:
        if isinstance(values, list):
            return dict(zip(names, values, strict=True))
        if not isinstance(sent, Mapping):
            return sent
        return {key.name if isinstance(key, Tensor) else key: value for key, value in sent.items()}

    return make


def _shown(keys: Iterable[object]) -> str:
    return ", ".join(sorted(map(_shown_key, keys))) or "none"


def _shown_key(key: object) -> str:
    return f"the tensor {key.name!r}" if isinstance(key, Tensor) else repr(key)
