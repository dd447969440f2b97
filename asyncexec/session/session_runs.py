"""SessionRuns: runs with a journal, which go on where they were; a base of Session."""

from __future__ import annotations

import asyncio
import base64
import secrets
import warnings
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from asyncexec.durable.checkpoint_log import CheckpointWarning
from asyncexec.durable.journal_codec import JournalCodec
from asyncexec.durable.journal_parts import (
    PAUSES,
    RUNS,
    has_ended,
    is_answered,
    pause_of,
    pause_with,
    read_record,
)
from asyncexec.durable.journal_scope import JournaledStep, Parked, nested_step
from asyncexec.durable.record import Codec, JsonCodec
from asyncexec.durable.run_journal import RunJournal, forget
from asyncexec.durable.store import Store, checked_key, checked_store, keys_in
from asyncexec.executor.types.executor_factory import DEFAULT_EXECUTOR_TYPE, executor_types
from asyncexec.framework.cooperative import run_in_slices
from asyncexec.framework.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
)
from asyncexec.framework.pausing import Pause, PausedError
from asyncexec.graph.node import Node, Tensor
from asyncexec.session.call_arguments import as_tuple, bad_call, feed_tensors, target_nodes
from asyncexec.session.executors_and_keys import ExecutorsAndKeys
from asyncexec.session.fetch_mapper import FetchMapper, read_fetches, structure_key
from asyncexec.session.fetch_types import Feeds, Fetches
from asyncexec.session.fingerprint import fingerprint_of
from asyncexec.session.large_feeds import LargeFeedError
from asyncexec.session.session_config import RunOptions, SessionConfig
from asyncexec.session.told_runs import check_loops, check_nodes, check_run, fetches_of, told_of_fetches

if TYPE_CHECKING:
    from asyncexec.framework.clock import Clock
    from asyncexec.framework.step_stats import RunMetadata
    from asyncexec.graph.graph import Graph
    from asyncexec.session.executor_cache import ExecutorCache
    from asyncexec.session.step_runner import StepRunner
    from asyncexec.session.workers import Cluster

MAX_NAME_LENGTH: Final = 120
_NO_ANSWER: Final = ("", None)  # a token, and its value
_TARGETS: Final = object()  # stands between feeds and targets in the key of a signature


class Journals:
    """The journals of a session's runs, in *store*.

    Attributes:
        store: where they are.
        codec: makes bytes of Python objects.
        fingerprints: of signatures that have run.
    """

    def __init__(self, store: Store, codec: Codec | None, config: SessionConfig, cluster: Cluster | None) -> None:
        self.store: Store = checked_store(store)
        self.codec: Codec = JournalCodec(codec or JsonCodec())
        self.fingerprints: WeakKeyDictionary[ExecutorsAndKeys, str] = WeakKeyDictionary()
        self._under_way: dict[str, tuple[asyncio.Lock, list[None]]] = {}
        if cluster is not None:
            raise InvalidArgumentError("a session with a journal has no workers: give journal= or cluster=, not both")
        if not executor_types.lookup(config.executor_type or DEFAULT_EXECUTOR_TYPE).is_ours:
            raise InvalidArgumentError(
                f"a session with a journal has no executor of the type {config.executor_type!r}",
                hint="leave executor_type out",
            )

    @asynccontextmanager
    async def alone(self, run_id: str) -> AsyncIterator[None]:
        """Nobody else in this session goes on with the run meanwhile."""
        lock, users = self._under_way.setdefault(run_id, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._under_way[run_id]

    def new(self) -> RunJournal:
        """The journal of a run that has no name."""
        return RunJournal(self.store, self.codec, f"run-{secrets.token_hex(12)}", is_stored=False)

    async def load(self, run_id: str) -> RunJournal:
        """The journal of the run of that name, with what the store has of it."""
        journal = RunJournal(self.store, self.codec, checked_run_id(run_id), is_stored=True)
        await journal.load()
        return journal


def checked_run_id(run_id: object) -> str:
    """*run_id*; InvalidArgumentError unless it can be the name of a run."""
    if not isinstance(run_id, str) or "/" in run_id or not 0 < len(run_id) <= MAX_NAME_LENGTH:
        raise InvalidArgumentError(
            f"{run_id!r:.200} is no name of a run",
            hint=f"a word of letters, digits and _.=+- of at most {MAX_NAME_LENGTH} characters",
        )
    checked_key(run_id)
    return run_id


async def _parts_in(store: Store, folder: str) -> list[tuple[str, str, str]]:
    """The keys in *folder*, each with the run and the part of it that it is of; not those of something else."""
    keys = [(key, key.split("/")) for key in await keys_in(store, f"{folder}/")]
    return [(key, words[1], words[2]) for key, words in keys if len(words) == 3]


class SessionRuns:
    """What a session has of runs with a journal."""

    if TYPE_CHECKING:
        graph: Graph
        _journals: Journals | None
        _cache: ExecutorCache
        _clock: Clock
        _runner: StepRunner
        _run_admitted: Any
        _bounded: Any

        def _check_open(self) -> None: ...

    async def resume(
        self,
        token: str,
        value: object,
        *,
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
    ) -> Any:
        """Give the pause of *token* its *value*, and go on with its run; returns what ``run`` would have.

        ``await ax.pause(...)`` returns the value: None, a number, a string, or lists and dicts of these, or an array.
        The session may be another than that of the run, in another process, if its graph and its journal are the same.
        A token is good for one value.  If the op that has paused fails with it, the token is good for another one.

        Args:
            token: of ``PausedError`` or ``pauses()``.
            value: what the op gets.
            options, metadata: as of ``run``; they are not kept from the run.

        Raises:
            FailedPreconditionError: the token has been used; or the graph has changed since the run was begun.  Or the
                session has no journal.
            InvalidArgumentError: the value has no form in which it can be stored.
            NotFoundError: no pause waits for this token.
            PausedError: the run waits for more.
            OpError: as of ``run``.
        """
        journals = self._with_journals("resume")
        if not isinstance(token, str):
            raise InvalidTypeError(f"a token is a string, not {token!r}")
        pause = await pause_with(journals.store, token, journals.codec)
        return await self._bounded(self._go_on(pause.run_id, (token, value), options, metadata), options)

    async def resume_run(
        self, run_id: str, *, options: RunOptions | None = None, metadata: RunMetadata | None = None
    ) -> Any:
        """Go on with the run *run_id* where its process ended, or it failed; returns what ``run`` would have.

        Of a run that has given its result, this is the result again; no op is called.

        Raises:
            FailedPreconditionError: the graph has changed since the run was begun, or the session has no journal.
            NotFoundError: there is no such run.
            PausedError: the run waits for values.
            OpError: as of ``run``.
        """
        self._with_journals("resume_run")
        return await self._bounded(self._go_on(run_id, _NO_ANSWER, options, metadata), options)

    async def pauses(self) -> list[Pause]:
        """The pauses that wait for their values, of all runs in the journal; the oldest first.

        So are those whose op has failed with its value: they may be given another one.
        Of a pause that cannot be read, a ``CheckpointWarning`` tells.

        Raises:
            FailedPreconditionError: the session has no journal.
        """
        journals = self._with_journals("pauses")
        found: list[Pause] = []
        for key, run_id, part in await _parts_in(journals.store, PAUSES):
            try:
                record = await read_record(journals.store, key, journals.codec)
                pause = pause_of(record)
            except NotFoundError:
                continue
            except (DataLossError, FailedPreconditionError) as error:
                warnings.warn(f"a pause cannot be read: {error.message}", CheckpointWarning, stacklevel=2)
                continue
            if not await is_answered(journals.store, run_id, part, record):
                found.append(pause)
        return sorted(found, key=lambda pause: pause.paused_at)

    async def unfinished_runs(self) -> list[str]:
        """The runs that neither gave a result nor wait for a value: their processes ended, or they failed.

        So are those that are under way.  ``resume_run`` goes on with them.

        Raises:
            FailedPreconditionError: the session has no journal.
        """
        journals = self._with_journals("unfinished_runs")
        parts: dict[str, set[str]] = {}
        for _, run_id, part in await _parts_in(journals.store, RUNS):
            parts.setdefault(run_id, set()).add(part)
        return [run_id for run_id, found in parts.items() if not has_ended(found)]

    async def forget_run(self, run_id: str) -> None:
        """Delete what the journal has of a run, its pauses too; nothing happens when there is nothing.

        Raises:
            FailedPreconditionError: the session has no journal.
            InvalidArgumentError: *run_id* is no name of a run.
        """
        journals = self._with_journals("forget_run")
        async with journals.alone(checked_run_id(run_id)):
            await forget(journals.store, run_id)

    def _with_journals(self, method: str) -> Journals:
        self._check_open()
        if self._journals is None:
            raise FailedPreconditionError(
                f"{method} needs a session with a journal", hint="ax.Session(graph, journal=store)"
            )
        return self._journals

    async def _run_with_journal(
        self,
        fetches: Fetches,
        feeds: Feeds | None,
        targets: Iterable[Node | Tensor | str],
        options: RunOptions | None,
        metadata: RunMetadata | None,
    ) -> object:
        """See Session.run."""
        assert self._journals is not None
        self._check_open()
        step = nested_step("run")
        run_id = None if options is None else options.run_id
        given = fetches, feeds, targets, options, metadata
        if step is not None:
            if run_id is not None:
                raise InvalidArgumentError(f"a run that an op begins is a part of the op's, and not {run_id!r}")
            return await self._begin(given, partial(self._runner.run, journaled=step))
        if run_id is None:
            return await self._begin(given, partial(self._attempt, self._journals.new(), fetches, targets, _NO_ANSWER))
        async with self._journals.alone(run_id):
            journal = await self._journals.load(run_id)
            return await self._begin(given, partial(self._attempt, journal, fetches, targets, _NO_ANSWER))

    async def _go_on(
        self, run_id: str, answer: tuple[str, object], options: RunOptions | None, metadata: RunMetadata | None
    ) -> object:
        assert self._journals is not None
        if options is not None and options.run_id not in (None, run_id):
            raise InvalidArgumentError(
                f"this is the run {run_id!r}, and not {options.run_id!r}", hint="leave run_id out"
            )
        async with self._journals.alone(checked_run_id(run_id)):
            journal = await self._journals.load(run_id)
            told = journal.told
            if told is None:
                raise NotFoundError(f"the journal has no run {run_id!r}")
            fetches, targets, feeds = fetches_of(told["fetches"]), told["targets"], dict(journal.feeds)
            try:
                FetchMapper(self.graph, fetches)
                feed_tensors(self.graph, tuple(feeds))
                target_nodes(self.graph, targets)
            except InvalidArgumentError as error:
                raise FailedPreconditionError(
                    f"the graph has changed since the run {run_id!r} was begun: {error.message}",
                    hint="go on with the graph of the run",
                ) from None
            given = fetches, feeds, targets, options, metadata
            return await self._begin(given, partial(self._attempt, journal, fetches, targets, answer))

    async def _begin(self, given: tuple[Any, ...], run: object) -> object:
        """Prepare the signature, and *run* it."""
        fetches, feeds, targets, options, metadata = given
        feeds = {} if feeds is None else feeds
        try:
            targets = as_tuple(targets)
            key = (structure_key(fetches), *feeds, _TARGETS, *map(structure_key, targets))
            values = tuple(feeds.values())
        except (AttributeError, RecursionError) as error:
            raise bad_call(feeds, error) from None
        known = self._cache.get(key) or await read_fetches(self.graph, fetches, key[0], self._clock)
        return await self._run_admitted(key, known, tuple(feeds), targets, values, options, metadata, run)

    async def _attempt(
        self,
        journal: RunJournal,
        fetches: object,
        targets: Iterable[object],
        answer: tuple[str, object],
        prepared: ExecutorsAndKeys,
        values: Sequence[object],
        options: RunOptions | None,
        metadata: RunMetadata | None,
    ) -> object:
        """Run a step of *journal*'s run, after the pause of *answer*'s token has been given its value."""
        fingerprint = await self._fingerprint(prepared)
        feeds = await self._named_feeds(prepared, values)
        names = [target if isinstance(target, str) else target.name for target in as_tuple(targets)]
        told = {"fetches": told_of_fetches(fetches), "targets": names, "graph": fingerprint}
        if journal.told is not None:
            await check_run(journal, told, feeds)
        await journal.begin(told, feeds)
        token, value = answer
        if token:
            await journal.answer(token, value)
        step, result = JournaledStep(journal), None
        with suppress(Parked):
            result = await self._runner.run(prepared, values, options, metadata, step)
        if step.asked:
            raise PausedError.of(await journal.pause(step.asked))
        await journal.finish()
        return result

    async def _fingerprint(self, prepared: ExecutorsAndKeys) -> str:
        assert self._journals is not None
        known = self._journals.fingerprints
        if prepared not in known:
            nodes = prepared.client_graph.nodes
            await run_in_slices(check_nodes(nodes), self._clock)
            await run_in_slices(check_loops(prepared.graph.partitions.values()), self._clock)
            made = await run_in_slices(fingerprint_of((), nodes), self._clock)  # the fetches are told beside it
            known[prepared] = base64.b64encode(made).decode()
        return known[prepared]

    async def _named_feeds(self, prepared: ExecutorsAndKeys, values: Sequence[object]) -> dict[str, object]:
        try:
            feeds = prepared.convert(values)
        except LargeFeedError:
            feeds = await run_in_slices(prepared.convert_large(values), self._clock)
        return {tensor.name: value for tensor, value in zip(prepared.feeds, feeds, strict=True)}
