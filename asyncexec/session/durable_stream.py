"""DurableStream: what a stream with checkpoints has besides: where it begins, and what its checkpoints hold."""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import Any, Self, TypeVar

from asyncexec.durable.checkpoint_log import (
    INLINE_BYTES,
    CheckpointLog,
    CheckpointWarning,
    Loaded,
    name_of,
    read_record,
)
from asyncexec.durable.record import Codec, JsonCodec, Record, to_bytes
from asyncexec.durable.store import MemoryStore, Store, checked_store
from asyncexec.executor.streams.stream_cuts import Cut, StreamCuts
from asyncexec.framework.cooperative import run_in_slices
from asyncexec.framework.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, InvalidTypeError
from asyncexec.framework.resource_mgr import ResourceMgr, Restorable
from asyncexec.frontend.stream_functions import values_of
from asyncexec.frontend.stream_positions import HOW_TO_SEEK, can_seek, made
from asyncexec.graph.node import Node, Tensor
from asyncexec.process.gil_switches import quick_switches
from asyncexec.session.fingerprint import check_fingerprint, fingerprint_of
from asyncexec.session.held_contents import contents_in, size_of, with_contents
from asyncexec.session.held_resources import (
    ResourceKey,
    contents_of,
    held_resources,
    present_resources,
    put_contents,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """What a caller asks for.

    Attributes:
        store: where checkpoints are; None where the stream only begins at one.
        every: items between two, or seconds if it is a float.
        resume: whether to go on at the last one in the store.
        restore: the checkpoint to go on at instead.
        exactly_once: whether all sources must be able to seek.
        codec: makes bytes of Python objects.
    """

    store: Store | None
    every: int | float
    resume: bool
    restore: bytes | None
    exactly_once: bool
    codec: Codec

    @classmethod
    def of(
        cls,
        checkpoint: Store | None,
        every: float,
        resume: bool,
        restore: bytes | None,
        exactly_once: bool,
        codec: Codec | None,
    ) -> Self | None:
        """The options of a call, checked; None where it asks for no checkpoints."""
        if checkpoint is None and restore is None:
            return None
        if restore is not None and not isinstance(restore, bytes):
            raise InvalidTypeError(f"restore takes the bytes that stream.snapshot() gave, not {type(restore).__name__}")
        store = None if checkpoint is None else checked_store(checkpoint)
        return cls(store, _checked_every(every), resume, restore, exactly_once, codec or JsonCodec())


def _checked_every(every: Any) -> int | float:
    """*every*: a number of items from 1 on, of any type of integers, or a float, of seconds."""
    number: Any = None
    with suppress(TypeError):
        number = float(every) if isinstance(every, float) else index(every)
    if number is None or isinstance(every, bool) or not 0 < number < math.inf:
        raise InvalidArgumentError(f"every is a number of items from 1 on, or of seconds as a float, not {every!r}")
    return number  # type: ignore[no-any-return]


class DurableStream:
    """See the head of this module.

    Attributes:
        cuts: where the stream is cut.
        start: the number of the first item.
        positions: where each source begins, by name, or where a map does; None for the number of the first item.
        states: what the first item reads of each state, by name; None where a stream begins anew.
    """

    def __init__(
        self,
        options: CheckpointOptions,
        fetches: Iterable[str],
        resources: ResourceMgr,
        *,
        is_ordered: bool,
        schedule_seed: int | None,
    ) -> None:
        every, store = options.every, options.store
        is_count = type(every) is int
        self.cuts: StreamCuts = StreamCuts(
            self._save,
            int(every) if is_count and store is not None else None,
            every if not is_count and store is not None else None,
        )
        self.start: int = 0
        self.positions: Any = None
        self.states: Mapping[str, Any] | None = None
        # With the results in its transaction, and without an order of them, what is behind a cut must not be there yet.
        self.cuts.holds = bool(getattr(store, "commits_outputs", False)) or not is_ordered
        self._options = options
        self._manager = resources
        self._fetches = list(fetches)
        self._schedule_seed = schedule_seed
        self._log = CheckpointLog(store or MemoryStore(), name_of(self._fetches), options.codec)
        self._restored: Record | None = None
        self._fingerprint = b""
        self._nodes: tuple[Node, ...] = ()
        self._names: list[str] = []
        self._resources: dict[ResourceKey, Restorable] = {}

    async def begin(self, nodes: Iterable[Node], clock: Any) -> None:
        """Read the checkpoint that the stream begins at, if there is one for the graph of *nodes*."""
        options = self._options
        self._nodes = tuple(nodes)
        self._fingerprint = await run_in_slices(fingerprint_of(self._fetches, self._nodes), clock)
        record, where, hint = None, "this snapshot", "go on with the graph of the snapshot"
        if options.restore is not None:
            record = await read_record(options.restore, options.codec)
        check_begin: Any = getattr(options.store, "check_begin", None)
        if check_begin is not None:
            await check_begin()
        await self._log.own()
        loaded = await self._load()
        if record is None and options.resume and loaded is not None:
            record, where = loaded.record, f"checkpoint {loaded.key!r}"
            hint = "go on with the graph of the checkpoint; or resume=False begins anew"
        if record is None:
            return
        try:
            check_fingerprint(record.values["graph"], self._fingerprint, where, hint)
            record = contents_in(record)
            self.start = int(record.about["number"])
            self.positions = record.about["positions"]
            self.states = {name: record.values[f"state {name!r}"] for name in record.about["states"]} or None
            self._check_schedule(record.about["schedule_seed"], where)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, FailedPreconditionError):
                raise
            raise DataLossError(f"{where} is no checkpoint of a stream: {error!r} is wrong") from error
        self.cuts.position = self.positions
        self._restored = record

    def _check_schedule(self, seed: int | None, where: str) -> None:
        if seed != self._schedule_seed:
            told = f"{where} was made with schedule_seed={seed}, and the session has {self._schedule_seed}"
            warnings.warn(f"{told}: nodes run in another order", CheckpointWarning, stacklevel=2)

    async def _load(self) -> Loaded | None:
        """The last checkpoint, which new ones are numbered after."""
        options = self._options
        if options.resume and options.restore is None:
            return await self._log.load()
        with suppress(DataLossError, FailedPreconditionError), warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckpointWarning)
            await self._log.load()
        self._log.begin_anew()
        return None

    def check_sources(self, sources: Iterable[Tensor]) -> dict[Tensor, Any]:
        """What each of *sources* draws from, made.

        Raises:
            FailedPreconditionError: one cannot seek, and exactly-once is asked for.
        """
        found = {source: made(values_of(source.op)) for source in sources}
        for source, values in found.items():
            self._check(values, f"source {source.op.name!r}")
        return found

    def check_items(self, items: object) -> None:
        """The same of what a map draws from."""
        self._check(items, f"the {type(items).__name__} that a map draws from")

    def _check(self, values: object, what: str) -> None:
        if self._options.exactly_once and not can_seek(values):
            raise FailedPreconditionError(
                f"{what} cannot seek, so items would be missed or come twice after a restart", hint=HOW_TO_SEEK
            )

    @property
    def item_position(self) -> Any:
        """Where what a map draws from begins; None for its beginning."""
        return (self.start or None) if self.positions is None else self.positions

    def position_of(self, name: str) -> Any:
        """Where the source *name* begins; None for its beginning."""
        return None if self.positions is None else self.positions.get(name)

    @property
    def draws_again(self) -> bool:
        """Whether what was drawn and not sent comes again, when the stream goes on from its last checkpoint."""
        return self._options.store is not None and self._options.exactly_once

    def state_of(self, name: str) -> Any:
        """What the first item reads of the state *name*, where the stream does not begin anew.

        Raises:
            DataLossError: the checkpoint has not got it.
        """
        assert self.states is not None
        if name not in self.states:
            raise DataLossError(f"the checkpoint has no state {name!r}")
        return self.states[name]

    def attach(self, states: Iterable[str], nodes: Sequence[Node]) -> None:
        """Take note of what the items leave, and let the resources have what the checkpoint holds of them."""
        self._names = list(states)
        self._resources = held_resources(nodes, self._manager)
        self.cuts.holds = self.cuts.holds or bool(self._resources)
        if self._restored is not None:
            put_contents(self._resources, self._restored.about["resources"], self._restored.values)
            self._restored = None

    async def _save(self, cut: Cut) -> None:
        record = await run_in_slices(with_contents(self._record(cut)))
        with quick_switches():
            await self._log.append(await _made(self._log.entry, record))

    async def content(self, record: Record) -> bytes:
        """The bytes of *record*.

        Raises:
            InvalidArgumentError: a state has no form in which it can be stored.
        """
        full = await run_in_slices(with_contents(record))
        return await _made(partial(to_bytes, codec=self._options.codec), full)

    def record(self, cut: Cut) -> Record:
        """What a snapshot at *cut* holds."""
        if self._restored is not None and cut.number == self.start:  # no item has begun
            return self._restored
        if not self._resources:
            self._resources = present_resources(self._nodes, self._manager)
        return self._record(cut)

    def _record(self, cut: Cut) -> Record:
        about, values = contents_of(self._resources)
        states = (self.states or {}).values()
        held = [cell.value for cell in cut.cells] if cut.cells else states
        names = self._names or list(self.states or {})
        values |= {f"state {name!r}": value for name, value in zip(names, held, strict=True)}
        values["graph"] = self._fingerprint
        told = {
            "schedule_seed": self._schedule_seed,
            "number": cut.number,
            "positions": cut.position,
            "states": names,
            "resources": about,
        }
        return Record(told, values)


async def _made(make: Callable[[Record], T], record: Record) -> T:
    """What *make* makes of *record*; on a thread where that may take long."""
    return make(record) if size_of(record) <= INLINE_BYTES else await asyncio.to_thread(make, record)
