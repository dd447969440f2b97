"""Records of runs (``RunOptions(record=...)``) and of items of streams, which are written however these end."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from asyncexec.checkpoints.replaced_file import replacing
from asyncexec.executor.diagnostics.run_recorder import RunRecorder, collect_by
from asyncexec.framework.cooperative import outlast, run_in_slices
from asyncexec.framework.errors import (
    FailedPreconditionError,
    NotFoundError,
    OpError,
    ResourceExhaustedError,
    UnimplementedError,
)
from asyncexec.framework.file_errors import file_errors
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.session.call_arguments import as_tuple, target_nodes
from asyncexec.session.fetch_mapper import FetchMapper
from asyncexec.session.recorded_graph import RecordedGraph, ancestors_of
from asyncexec.session.run_record import SETTINGS, Outcome, RunRecord, parts_of
from asyncexec.session.session_config import RunOptions, SessionConfig

_SUFFIX: Final = ".axr"


OVER_WORKERS: Final = "over workers"
WITH_A_JOURNAL: Final = "with a journal"
# Why the runs of a kind are not recorded, and what a session for records does without.
_UNRECORDED: Final = {
    OVER_WORKERS: ("what they do is not known here", "cluster="),
    WITH_A_JOURNAL: ("the journal has their results", "journal="),
}


class RecordingSession(Protocol):
    """What is recorded of: a Session."""

    graph: Graph
    config: SessionConfig
    recorded_nodes: dict[Node, bool]

    @property
    def kind_of_runs(self) -> str: ...

    @property
    def run(self) -> Any: ...


def is_to_be_recorded(config: SessionConfig, options: RunOptions | None) -> bool:
    """Whether a run with *options* is recorded, and not yet."""
    if options is None:
        return config.record_failures is not None
    return options.record is not None or (config.record_failures is not None and not options.is_recorded)


def check_records(kind: str) -> None:
    """UnimplementedError where the runs of a session, of a *kind*, are to be recorded that cannot be."""
    if kind in _UNRECORDED:
        why, hint = _UNRECORDED[kind]
        raise UnimplementedError(
            f"runs {kind} are not recorded: {why}", hint=f"record runs in a session without {hint}"
        )


async def record_run(
    session: RecordingSession,
    fetches: object,
    feeds: object,
    targets: Iterable[object],
    options: RunOptions | None,
    metadata: RunMetadata | None,
) -> Any:
    """What ``session.run`` gives for these; *options*, or the config, say where the record goes.

    Raises:
        NotFoundError, PermissionDeniedError: it cannot be written there.
        ResourceExhaustedError: it has more bytes than the options let it.
        UnimplementedError: the session has workers.
    """
    check_records(session.kind_of_runs)
    options = options or RunOptions()
    path = None if options.record is None else await asyncio.to_thread(_path, options.record)
    mapper = FetchMapper(session.graph, fetches)
    nodes = [*mapper.targets, *target_nodes(session.graph, as_tuple(targets))]
    recorder = RunRecorder(options.record_limit, session.recorded_nodes, traces=options.trace)
    writer = RecordWriter(
        session.graph, session.config, mapper.tensors, nodes, options.record_limit, options.timeout, path
    )
    collect_by(recorder)
    try:
        values = await session.run(
            mapper.tensors, feeds, targets=nodes, options=options.inside_record(), metadata=metadata
        )
    except BaseException as error:
        if isinstance(error, (Exception, asyncio.CancelledError)):
            await _finish(writer.note(recorder, error))
        raise
    finally:
        collect_by(None)  # it may not have come to its step
    if options.record is not None and options.record_when == "always":
        await writer.write(recorder, Outcome(values, None, False, recorder.elapsed_s))
    return mapper.build(values)


def _path(path: Path) -> Path:
    """The file to write; NotFoundError where there is no folder for it."""
    with file_errors():
        if path.is_dir():
            return path / f"run-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}{_SUFFIX}"
        if not path.parent.is_dir():
            raise NotFoundError(f"there is no folder {str(path.parent)!r} to write the record {path.name!r} into")
    return path


def _path_in(folder: Path) -> Path:
    """A file in *folder*, which is made."""
    with file_errors():
        folder.mkdir(parents=True, exist_ok=True)
    return _path(folder)


class RecordWriter:
    """Writes records of runs of one signature: to *path*, or to files in the folder that *config* names."""

    def __init__(
        self,
        graph: Graph,
        config: SessionConfig,
        fetches: Sequence[Tensor],
        targets: Sequence[Node],
        limit: int,
        timeout_s: float | None,
        path: Path | None,
    ) -> None:
        self._graph, self._config = graph, config
        self._tensors = fetches
        self._targets = targets
        self._limit = limit
        self._timeout_s = timeout_s or config.timeout
        self._path = path

    async def note(self, recorder: RunRecorder, error: BaseException) -> None:
        """Write the record of a run that has failed with *error*, or was cancelled; the error tells where it is."""
        is_cancelled = isinstance(error, asyncio.CancelledError)
        outcome = Outcome(None, None if is_cancelled else error, is_cancelled, recorder.elapsed_s)
        try:
            path = await self.write(recorder, outcome)
        except OpError as failure:
            error.add_note(f"the run is not recorded: {failure.message}")
        else:
            error.add_note(f"the run is recorded: asyncexec replay {path}")

    async def write(self, recorder: RunRecorder, outcome: Outcome) -> Path:
        """Write the record of what *recorder* has gathered; where it is.

        Raises:
            FailedPreconditionError: the step has not begun.
            ResourceExhaustedError: there is too much.
            OpError: the file cannot be written.
        """
        feeds = recorder.feeds
        if feeds is None:
            raise FailedPreconditionError("its step has not begun")
        if recorder.has_too_much:
            raise ResourceExhaustedError(
                f"the record of this run has more than {self._limit:,} bytes of feeds and results",
                hint="RunOptions(record_limit=...)",
            )
        calls, open_calls = list(recorder.ended), recorder.open_calls
        makers = (self._graph.tensor(name).op for name in feeds)
        ends = [*(tensor.op for tensor in self._tensors), *self._targets, *makers]
        nodes = await run_in_slices(ancestors_of(ends))
        settings = self._config.model_dump(mode="json")

        def write() -> Path:
            for call in (*calls, *open_calls):
                call.add_digest()
            graph = RecordedGraph(nodes)
            run = RunRecord(
                graph.graph_def,
                graph.error,
                graph.constants,
                graph.user_ops,
                feeds,
                [tensor.name for tensor in self._tensors],
                [node.name for node in self._targets],
                {name: settings[name] for name in SETTINGS},
                self._timeout_s,
                calls,
                open_calls,
                outcome,
            )
            path = self._path
            if path is None:
                assert self._config.record_failures is not None
                path = _path_in(self._config.record_failures)
            with file_errors(), replacing(path) as file:
                for part in parts_of(run):
                    file.write(part)
            return path

        return await asyncio.to_thread(write)


class ItemRecorder:
    """Records the items of one stream that fail."""

    def __init__(
        self, graph: Graph, config: SessionConfig, feeds: Sequence[Tensor], fetches: Sequence[Tensor], limit: int
    ) -> None:
        self._feeds = feeds
        self._limit = limit
        self._writer = RecordWriter(graph, config, fetches, (), limit, None, None)
        self._recorders: dict[int, RunRecorder] = {}
        self._known: dict[Node, bool] = {}

    def begin(self, number: int, values: Sequence[object]) -> None:
        """Item *number* begins, and feeds *values*, besides those of states."""
        recorder = self._recorders[number] = RunRecorder(self._limit, self._known)
        recorder.note_feeds(self._feeds[: len(values)], values)

    def collector_of(self, number: int) -> RunRecorder:
        """What gathers the calls of item *number*."""
        return self._recorders[number]

    def forget(self, number: int) -> None:
        """Item *number* has ended well."""
        self._recorders.pop(number, None)

    def end(self, number: int, states: Mapping[int, object], error: BaseException) -> Coroutine[Any, Any, None] | None:
        """What writes the record of item *number*, which has failed with *error*; *states* are fed, by position."""
        recorder = self._recorders.pop(number, None)
        if recorder is None or recorder.feeds is None or not isinstance(error, OpError):
            return None
        recorder.feeds = {**recorder.feeds, **{self._feeds[place].name: value for place, value in states.items()}}
        return self._writer.note(recorder, error)


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """*work*, whoever cancels meanwhile."""
    task = asyncio.get_running_loop().create_task(work)
    await outlast(task.done, lambda: asyncio.wait([task]))
    task.result()
