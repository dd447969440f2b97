"""RunRecord: what a run was given, what its nodes gave, and how it ended; and the file that it is in.

The file is a record of ``durable/record.py``: one part in JSON, and tensors.  Nothing in it is pickled.  A value that
is no tensor, and that JSON does not give back as it is, is told by its class alone: it stands for itself between nodes
whose results are recorded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from asyncexec.durable.content import digest_of
from asyncexec.durable.record import JsonCodec, Record, from_bytes, to_parts
from asyncexec.executor.diagnostics.run_recorder import RecordedCall
from asyncexec.framework.error_record import made_of, told_of
from asyncexec.framework.errors import (
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidTypeError,
    OpError,
)
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import as_dtype
from asyncexec.session.session_config import SessionConfig

VERSION: Final = 1
# Of a SessionConfig, what a replay takes over; a file has no say in the rest.
SETTINGS: Final = (
    "allow_soft_placement", "device_count", "executor_type", "optimization", "place_pruned_graph", "python_scalars",
    "schedule_seed",
)  # fmt: skip
_MAX_DEVICES: Final = 10_000  # of a type
_JSON: Final = JsonCodec()


@dataclass(frozen=True, slots=True)
class Opaque:
    """Stands for a Python object of the class *kind* that a record does not hold."""

    kind: str

    def __repr__(self) -> str:
        return f"<an object of {self.kind}, which the record does not hold>"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run has ended.

    Attributes:
        values: of the fetches; None where it has failed.
        error: what it failed with; None where it has not.
        is_cancelled: whether its caller was cancelled.
        time_s: when, from its begin.
    """

    values: Sequence[Any] | None
    error: BaseException | None
    is_cancelled: bool
    time_s: float

    def __str__(self) -> str:
        if self.is_cancelled:
            return "was cancelled"
        if self.error is None:
            return "gave its values"
        text = self.error.message if isinstance(self.error, OpError) else str(self.error)
        where = f" at node {self.error.node!r}" if isinstance(self.error, OpError) and self.error.node else ""
        return f"failed{where}: {text}"


@dataclass(frozen=True, slots=True)
class RecordedOp:
    """An op of the user's: where its function is, and what it gives."""

    function: str
    dtypes: Sequence[str]
    shapes: Sequence[Sequence[int | None] | None]
    texts: Sequence[int]  # the outputs that are text: str, where a caller gets Python values


@dataclass(frozen=True, slots=True)
class RunRecord:
    """See the head of this module.

    Attributes:
        graph: what the fetches depend on; None where it has no form in a file, for *graph_error*.
        constants: large ones, by the names of nodes.
        user_ops: by op type.
        feeds: by the names of tensors; fetches: names of tensors; targets: names of nodes.
        config: the settings of the session that matter; timeout_s: that of the run.
        calls: of recorded nodes that have ended, in that order; open_calls: of those that have not.
    """

    graph: GraphDef | None
    graph_error: str
    constants: Mapping[str, Any]
    user_ops: Mapping[str, RecordedOp]
    feeds: Mapping[str, Any]
    fetches: Sequence[str]
    targets: Sequence[str]
    config: Mapping[str, Any]
    timeout_s: float | None
    calls: Sequence[RecordedCall]
    open_calls: Sequence[RecordedCall]
    outcome: Outcome


@dataclass(slots=True)
class _Values:
    """The values of a record, by names; those that it cannot hold apart."""

    values: dict[str, Any] = field(default_factory=dict)
    opaque: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: object) -> None:
        if _can_be_stored(value):
            self.values[name] = value
        else:
            kind = type(value)
            self.opaque[name] = value.kind if isinstance(value, Opaque) else f"{kind.__module__}.{kind.__qualname__}"

    def get(self, name: str) -> Any:
        return Opaque(self.opaque[name]) if name in self.opaque else self.values[name]


def _can_be_stored(value: object) -> bool:
    if isinstance(value, (bytes, np.generic)) or (isinstance(value, np.ndarray) and not value.dtype.hasobject):
        return True
    try:
        to_parts(Record({}, {"value": value}), _JSON)
    except OpError:
        return False
    return True


def parts_of(run: RunRecord) -> list[bytes | memoryview]:
    """The bytes of *run*, in parts that follow one another."""
    values = _Values()
    for name, value in run.constants.items():
        values.add(f"constant {name}", value)
    for name, value in run.feeds.items():
        values.add(f"feed {name}", value)
    calls = [_told_of_call(call, number, values) for number, call in enumerate([*run.calls, *run.open_calls])]
    outcome = run.outcome
    for number, value in enumerate(outcome.values or ()):
        values.add(f"fetch {number}", value)
    about = {
        "run": VERSION,
        "graph": None if run.graph is None else run.graph.to_json(),
        "graph_error": run.graph_error,
        "user_ops": {
            name: [op.function, list(op.dtypes), list(op.shapes), list(op.texts)] for name, op in run.user_ops.items()
        },
        "fetches": list(run.fetches),
        "targets": list(run.targets),
        "config": dict(run.config),
        "timeout": run.timeout_s,
        "calls": calls,
        "outcome": {
            "num_values": None if outcome.values is None else len(outcome.values),
            "error": None if outcome.error is None else told_of(outcome.error),
            "cancelled": outcome.is_cancelled,
            "time": outcome.time_s,
        },
        "opaque": values.opaque,
    }
    return to_parts(Record(about, values.values), _JSON)


def _told_of_call(call: RecordedCall, number: int, values: _Values) -> dict[str, object]:
    for index, value in enumerate(call.outputs):
        values.add(f"call {number} output {index}", value)
    return {
        "node": call.node,
        "op": call.op,
        "where": list(call.where),
        "start": call.start_s,
        "end": call.end_s,
        "num_outputs": len(call.outputs),
        "error": None if call.error is None else told_of(call.error),
        "inputs": call.inputs,
    }


def run_of(content: bytes, source: str) -> RunRecord:
    """The run that *content*, of the file *source*, is a record of.

    Raises:
        DataLossError: it is none, or is torn or damaged.
        FailedPreconditionError: it is of a newer version.
    """
    try:
        record = from_bytes(content, _JSON)
    except OpError as error:
        raise type(error)(
            f"{source} is no record of a run that can be read: {error.message}", hint=error.hint
        ) from None
    about = record.about
    version = about.get("run")
    if type(version) is not int:
        raise DataLossError(f"{source} is no record of a run: it is a checkpoint, or a result of an op")
    if version > VERSION:
        raise FailedPreconditionError(
            f"{source} is a record of version {version}, and this asyncexec reads versions up to {VERSION}",
            hint="it was written by a newer asyncexec; replay it with that one",
        )
    try:
        return _run(about, _Values(dict(record.values), dict(about["opaque"])))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise DataLossError(
            f"{source} is no record of a run that can be read: {type(error).__name__}: {error}"
        ) from error


def _run(about: Mapping[str, Any], values: _Values) -> RunRecord:
    names = [*values.values, *values.opaque]
    calls = [_call(told, number, values) for number, told in enumerate(about["calls"])]
    told = about["outcome"]
    fetched = None if told["num_values"] is None else [values.get(f"fetch {n}") for n in range(told["num_values"])]
    error = None if told["error"] is None else made_of(told["error"])
    return RunRecord(
        None if about["graph"] is None else GraphDef.model_validate_json(about["graph"]),
        str(about["graph_error"]),
        {name.removeprefix("constant "): values.get(name) for name in names if name.startswith("constant ")},
        {str(name): _op(*each) for name, each in about["user_ops"].items()},
        {name.removeprefix("feed "): values.get(name) for name in names if name.startswith("feed ")},
        [str(name) for name in about["fetches"]],
        [str(name) for name in about["targets"]],
        _config(about["config"]),
        None if about["timeout"] is None else _seconds(about["timeout"]),
        [call for call in calls if call.end_s is not None],
        [call for call in calls if call.end_s is None],
        Outcome(fetched, error, bool(told["cancelled"]), _seconds(told["time"])),
    )


def _config(told: Mapping[str, object]) -> Mapping[str, Any]:
    if not set(told) <= set(SETTINGS):
        raise ValueError(f"no run is recorded with the settings {sorted(set(told) - set(SETTINGS))}")
    found = SessionConfig.model_validate(told)
    if not all(0 <= count <= _MAX_DEVICES for count in found.device_count.values()):
        raise ValueError(f"no run is recorded with the devices {found.device_count}")
    return found.model_dump(mode="json", include=set(told))


def _op(function: object, dtypes: Any, shapes: Any, texts: Any) -> RecordedOp:
    found = RecordedOp(
        str(function),
        [as_dtype(dtype).name for dtype in dtypes],
        [TensorShape(shape).dims for shape in shapes],
        [int(number) for number in texts],
    )
    if len(found.dtypes) != len(found.shapes) or not set(found.texts) <= set(range(len(found.dtypes))):
        raise ValueError("an op does not have as many shapes as outputs")
    return found


def _call(told: Mapping[str, Any], number: int, values: _Values) -> RecordedCall:
    return RecordedCall(
        str(told["node"]),
        str(told["op"]),
        tuple(map(str, told["where"])),
        _seconds(told["start"]),
        None if told["end"] is None else _seconds(told["end"]),
        tuple(values.get(f"call {number} output {index}") for index in range(told["num_outputs"])),
        None if told["error"] is None else made_of(told["error"]),
        str(told["inputs"]),
    )


def _seconds(told: object) -> float:
    if isinstance(told, bool) or not isinstance(told, (int, float)) or not 0 <= told < math.inf:
        raise ValueError(f"{told!r} is no time")
    return float(told)


def difference(recorded: Outcome, replayed: Outcome, fetches: Sequence[str]) -> str | None:
    """How two outcomes differ; None where they do not."""
    if recorded.values is not None and replayed.values is not None:
        pairs = zip(fetches, recorded.values, replayed.values, strict=True)
        differing = [name for name, before, now in pairs if not _are_same(before, now)]
        return f"fetch {differing[0]!r} has another value" if differing else None
    if recorded.error is not None and replayed.error is not None and _key(recorded.error) == _key(replayed.error):
        return None
    if recorded.is_cancelled and replayed.is_cancelled:
        return None
    return f"the recorded run {recorded}; the replayed run {replayed}"


def _key(error: BaseException) -> tuple[object, ...]:
    if isinstance(error, DeadlineExceededError) and error.node is None:  # how long nodes were at it may differ
        return (error.code,)
    if isinstance(error, OpError):
        return error.code, error.message, error.node, error.iteration
    return type(error).__name__, str(error)


def in_the_form_of(recorded: Sequence[object] | None, values: Sequence[object]) -> list[Any]:
    """*values*, in which what is text in *recorded* is text: a graph that was loaded does not tell all that is."""
    if recorded is None:
        return list(values)
    pairs = zip(values, recorded, strict=True)
    return [
        value.decode() if isinstance(before, str) and isinstance(value, bytes) else value for value, before in pairs
    ]


def _are_same(before: object, now: object) -> bool:
    if isinstance(before, Opaque) or isinstance(now, Opaque):
        return _kind(before) == _kind(now)
    try:
        return digest_of(before) == digest_of(now)
    except InvalidTypeError:
        return _kind(before) == _kind(now)


def _kind(value: object) -> str:
    return value.kind if isinstance(value, Opaque) else f"{type(value).__module__}.{type(value).__qualname__}"
