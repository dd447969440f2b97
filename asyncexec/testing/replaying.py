"""``replay``: a recorded run once more, on the virtual clock, with what its nodes gave."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from asyncexec.executor.diagnostics.run_recorder import collect_by
from asyncexec.framework.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from asyncexec.framework.file_errors import checked_path, file_errors
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.frontend.user_op import UserOp, user_op_of
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node
from asyncexec.session.direct_session import Session
from asyncexec.session.recorded_graph import graph_of
from asyncexec.session.run_record import Outcome, RunRecord, difference, in_the_form_of, run_of
from asyncexec.session.session_config import RunOptions, SessionConfig
from asyncexec.testing.replayer import Replayer, told_of
from asyncexec.testing.virtual_clock import VirtualClockLoop

_MOMENT_S: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Replayed:
    """A run that was replayed: what ``replay`` gives.

    Attributes:
        values: of the fetches, by the names of tensors; empty where the replayed run has failed.
        error: what the replayed run has failed with, or None.
        recorded_values, recorded_error: the same of the recorded run.
        is_cancelled: whether the caller of the recorded run was cancelled.
        differences: how the replayed run differs from the recorded one: the nodes, in order, and then the outcome.
        order: the played nodes in the order in which they ended, with the iterations that they were in.
        record: all that is recorded.
    """

    values: Mapping[str, Any]
    error: BaseException | None
    recorded_values: Mapping[str, Any]
    recorded_error: BaseException | None
    is_cancelled: bool
    differences: tuple[str, ...]
    order: tuple[str, ...]
    record: RunRecord

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def result(self) -> list[Any]:
        """The values of the fetches, in order; or the error is raised."""
        if self.error is not None:
            raise self.error
        return list(self.values.values())


def replay(path: str | PathLike[str], graph: Graph | None = None, *, call: Collection[UserOp | str] = ()) -> Replayed:
    """Run again what ``RunOptions(record=path)`` has recorded, on the virtual clock.

    Nodes that wait, have a state, draw random numbers, or run functions of yours are not called: they give what they
    gave, in the recorded order.  All other nodes run.  Call it in a plain test, not in a coroutine.

    Args:
        path: the file.
        graph: the graph to run instead of the recorded one: what recorded nodes gave goes to your present code.  Ops
            with ``pure=True`` are called then.
        call: ops that are called, too, as ops or by their names; needs *graph*.

    Raises:
        DataLossError: the file is no record, or is damaged.
        FailedPreconditionError: it is of a newer version, or has no graph; or an event loop runs.
        InvalidArgumentError: *graph* does not have what was fed or fetched; or *call* without *graph*; or *path* is no
            path.
        NotFoundError, PermissionDeniedError: the file cannot be read.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise FailedPreconditionError(
            "an event loop runs, and a replay has one of its own", hint="call replay() in a plain function"
        )
    source = checked_path(path, "a record")
    with file_errors():
        content = Path(source).read_bytes()
    return replayed(run_of(content, repr(source)), repr(source), graph, call)


def replayed(run: RunRecord, source: str, graph: Graph | None = None, call: Collection[UserOp | str] = ()) -> Replayed:
    """What ``replay`` gives for *run*, of the file *source*."""
    if call and graph is None:
        raise InvalidArgumentError(
            "call= needs the graph that has these ops", hint="replay(path, graph=graph, call=...)"
        )
    if graph is None:
        made = graph_of(run, source)
    else:
        made = graph
        _check(run, made)
    live = {op if isinstance(op, str) else op.name for op in call}
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        outcome, replayer = runner.run(_replay(run, made, None if graph is None else live))
    differences = list(replayer.differences)
    how = difference(run.outcome, outcome, run.fetches)
    differences += [] if how is None else [how]
    return Replayed(
        _by_name(run, outcome),
        outcome.error,
        _by_name(run, run.outcome),
        run.outcome.error,
        run.outcome.is_cancelled,
        tuple(differences),
        tuple(map(told_of, replayer.order)),
        run,
    )


def _by_name(run: RunRecord, outcome: Outcome) -> dict[str, object]:
    return {} if outcome.values is None else dict(zip(run.fetches, outcome.values, strict=True))


def _check(run: RunRecord, graph: Graph) -> None:
    """InvalidArgumentError unless *graph* has what was fed and fetched."""
    for role, names in (("fetch", [*run.fetches, *run.targets]), ("feed", list(run.feeds))):
        for name in names:
            try:
                graph[name]
            except (NotFoundError, InvalidArgumentError) as error:
                raise InvalidArgumentError(
                    f"{role} {name!r} of the record is not in the graph: {error.message}",
                    hint="give its node the name that it had in the recorded run: name=...",
                ) from None


async def _replay(run: RunRecord, graph: Graph, live: AbstractSet[str] | None) -> tuple[Outcome, Replayer]:
    def is_live(node: Node) -> bool:
        """Whether *node* is called, of a graph whose functions are there."""
        found = None if live is None else user_op_of(node)
        if live is None or found is None:
            return live is not None and (node.op in live or node.name in live)
        is_pure = not node.properties.op_def.is_stateful
        return is_pure or not live.isdisjoint((node.op, node.name))

    replayer = Replayer(run, is_live)
    resources = ResourceMgr()
    resources.director = replayer
    settings = {**run.config, "allow_soft_placement": True, "executor_type": "TAGGED_TOKEN", "slow_inline_ms": None}
    is_late = isinstance(run.outcome.error, DeadlineExceededError) and run.outcome.error.node is None
    options = RunOptions(trace=True, timeout=run.timeout_s if is_late else None)
    collect_by(replayer)
    async with Session(graph, SessionConfig(**settings), resources=resources) as session:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        cancel = None
        if run.outcome.is_cancelled:
            cancel = loop.call_later(run.outcome.time_s + 2 * _MOMENT_S, task.cancel)
        targets = list(run.targets)
        try:
            values = await session.run(list(run.fetches), dict(run.feeds), targets=targets, options=options)
        except asyncio.CancelledError:
            if cancel is None:
                raise
            task.uncancel()
            outcome = Outcome(None, None, True, replayer.elapsed_s)
        except Exception as error:
            outcome = Outcome(None, error, False, replayer.elapsed_s)
        else:
            outcome = Outcome(in_the_form_of(run.outcome.values, values), None, False, replayer.elapsed_s)
        finally:
            if cancel is not None:
                cancel.cancel()
            replayer.close()
    return outcome, replayer
