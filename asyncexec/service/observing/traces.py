"""Traces: the timelines of sampled requests, in a file that the operator names; Triton's trace extension sets which.

The file is a Chrome trace, for ui.perfetto.dev: a process a request, with a row for its phases, and a row for each
thread that its nodes ran on.  It has the names, data types and shapes of tensors, and no values.  Clients choose what
is sampled, and not where it is written.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from asyncexec.framework.chrome_trace import chrome_trace, row_names
from asyncexec.framework.clock import CLOCK, NS_PER_US
from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.service.models.statistics import KNOWN, CallTimes
from asyncexec.service.requests import InferRequest, InferResponse, InferTensor

Settings: TypeAlias = Mapping[str, tuple[str, ...]]

OFF, TIMESTAMPS, TENSORS = "OFF", "TIMESTAMPS", "TENSORS"
LEVEL, _RATE, _COUNT, _FREQUENCY = "trace_level", "trace_rate", "trace_count", "log_frequency"
_FILE, _MODE = "trace_file", "trace_mode"
_DEFAULTS: Final[Settings] = {LEVEL: (OFF,), _RATE: ("1000",), _COUNT: ("-1",), _FREQUENCY: ("0",)}
_LEAST: Final = {_RATE: 1, _COUNT: -1, _FREQUENCY: 0}
_MOST: Final = 2**31 - 1
_MOST_DIGITS: Final = 11
_MOST_TRACES: Final = 1000  # that are kept until they are written
_MOST_FILES: Final = 100  # then the oldest is written over
_LOGGER: Final = logging.getLogger("asyncexec.service")


class ReadyModels(Protocol):
    """What is to be known of a repository."""

    def is_model_ready(self, name: str) -> bool: ...


class Trace:
    """The timeline of one request.

    Attributes:
        frequency: after how many traces they are to be written; 0 for at the end.
        metadata: what its run fills with the times of nodes; None where these are not wanted.
    """

    def __init__(self, traces: Traces, name: str, version: str, request: InferRequest, settings: Settings) -> None:
        levels = settings[LEVEL]
        self.frequency: int = int(settings[_FREQUENCY][0])
        self.metadata: RunMetadata | None = RunMetadata() if TIMESTAMPS in levels else None
        self._traces = traces
        self._title = f"{name} {version}" + (f", request {request.id}" if request.id else "")
        self._has_tensors = TENSORS in levels
        self._args: dict[str, Any] = {"inputs": _described(request.inputs)} if self._has_tensors else {}
        self._begin_ns = CLOCK.now_ns()
        self._phases: list[tuple[str, int, int]] = []

    def end(self, times: CallTimes, response: InferResponse) -> None:
        """It was answered by *response*, and was at these points at these times."""
        if self._has_tensors:
            self._args["outputs"] = _described(response.outputs)
        self._phases = [
            ("request", times.begin_ns, times.end_ns),
            ("compute_input", times.begin_ns, times.ready_ns),
            ("queue", times.ready_ns, times.begun_ns),
            ("compute_infer", times.begun_ns, times.ran_ns),
            ("compute_output", times.ran_ns, times.end_ns),
        ]
        if times.run_rows != KNOWN:
            self._args["rows of the run"] = times.run_rows
        self._traces.add(self)

    def fail(self, error: BaseException) -> None:
        """It failed with *error*."""
        self._args["failure"] = one_line(error)
        self._phases = [("request", self._begin_ns, CLOCK.now_ns())]
        self._traces.add(self)

    def events(self, pid: int, origin_ns: int, epoch_ns: int) -> Iterator[dict[str, Any]]:
        """Its events in a Chrome trace, as process *pid*.

        Times are relative to *origin_ns*, by the clock, whose 0 is *epoch_ns* after the beginning of 1970.
        """
        yield _name("process_name", self._title, pid)
        yield _name("thread_name", "phases", pid)
        for name, begin_ns, end_ns in self._phases:
            event = {"ph": "X", "cat": "request", "name": name, "pid": pid, "tid": 0}
            event |= {"ts": (begin_ns - origin_ns) / NS_PER_US, "dur": (end_ns - begin_ns) / NS_PER_US}
            yield event | ({"args": self._args} if name == "request" else {})
        if self.metadata is None or self.metadata.step_stats is None:
            return
        devices = self.metadata.step_stats.dev_stats
        starts = [each.all_start_nanos + each.op_start_rel_nanos for device in devices for each in device.node_stats]
        shift = (min(starts, default=0) - epoch_ns - origin_ns) / NS_PER_US
        events = chrome_trace(self.metadata.step_stats)["traceEvents"]
        names = row_names(events)
        for event in events:
            if event["name"] == "process_name":
                continue
            row = event["pid"], event["tid"]
            changed: dict[str, object] = {
                "pid": pid,
                "tid": row[1] + 1 + row[0] * _MOST_TRACES,
            }  # a row for each thread
            if event["name"] == "thread_name":
                changed["args"] = {"name": names[row]}
            if "ts" in event:
                changed["ts"] = event["ts"] + shift
            if "id" in event:  # of an arrow; there is another in each trace
                changed["id"] = event["id"] * (_MOST_TRACES + 1) + pid
            yield event | changed


class Traces:
    """Which requests are traced, and their traces until they are written.

    Args:
        file: where traces are written, at the end; or as *file*.0, *file*.1 and so on, as often as ``log_frequency``
            says.  None: nothing can be traced.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._global: MutableMapping[str, tuple[str, ...]] = ChainMap({}, dict(_DEFAULTS))
        self._of_models: dict[str, MutableMapping[str, tuple[str, ...]]] = {}
        self._num_seen: dict[int, int] = {}
        self._kept: list[Trace] = []
        self._num_files = 0
        self._writing: set[asyncio.Task[None]] = set()
        self._origin_ns, self._epoch_ns = CLOCK.now_ns(), CLOCK.epoch_offset_ns()
        self.is_on: bool = False

    def settings(self, model: str = "") -> dict[str, tuple[str, ...]]:
        """What holds for *model*, or for all models that have no settings of their own."""
        file = () if self._file is None else (str(self._file.name),)  # its folder is none of a client's business
        return {**self._of(model), _FILE: file or ("",), _MODE: ("triton",)}

    def update(self, changes: Mapping[str, Sequence[str] | None], model: str = "") -> None:
        """Change settings of *model*, or of all; None for what holds otherwise.

        Raises:
            InvalidArgumentError: a value is none; there is no file for traces.
            UnimplementedError: another file.
        """
        if _FILE in changes:
            raise UnimplementedError("trace file location can not be updated through network protocol")
        checked = {name: None if value is None else _checked(name, value) for name, value in changes.items()}
        checked.pop(_MODE, None)
        if self._file is None and checked.get(LEVEL) not in (None, (OFF,)):
            raise InvalidArgumentError("there is no file for traces", hint="start the service with --trace-file")
        if not checked:
            return
        settings = self._global if not model else self._of_models.setdefault(model, ChainMap({}, self._global))
        assert isinstance(settings, ChainMap)
        own = settings.maps[0]
        for name, value in checked.items():
            if value is None:
                own.pop(name, None)
            else:
                own[name] = value
        if not own:
            self._of_models.pop(model, None)
        self._num_seen.pop(id(settings), None)
        self.is_on = any(each[LEVEL] != (OFF,) for each in (self._global, *self._of_models.values()))

    def sample(self, name: str, version: str, request: InferRequest) -> Trace | None:
        """The trace of *request*, if it is one of those that are to be traced."""
        settings = self._of(name)
        count = int(settings[_COUNT][0])
        if settings[LEVEL] == (OFF,) or not count or len(self._kept) >= _MOST_TRACES:
            return None
        seen = self._num_seen[id(settings)] = self._num_seen.get(id(settings), 0) + 1
        if seen % int(settings[_RATE][0]):
            return None
        if count > 0:
            settings[_COUNT] = (str(count - 1),)
        return Trace(self, name, version, request, settings)

    def add(self, trace: Trace) -> None:
        """*trace* is complete."""
        self._kept.append(trace)
        if self._file is not None and 0 < trace.frequency <= len(self._kept):
            path = self._file.with_name(f"{self._file.name}.{self._num_files % _MOST_FILES}")
            self._num_files += 1
            self._write(path)

    async def close(self) -> None:
        """Write what has not been written."""
        if self._kept and self._file is not None:
            self._write(self._file)
        while self._writing:
            await asyncio.wait(self._writing)

    def _of(self, model: str) -> MutableMapping[str, tuple[str, ...]]:
        return self._of_models.get(model, self._global)

    def _write(self, path: Path) -> None:
        traces, self._kept = self._kept, []
        task = asyncio.get_running_loop().create_task(self._written(path, traces))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _written(self, path: Path, traces: Sequence[Trace]) -> None:
        try:
            await asyncio.to_thread(_write, path, traces, self._origin_ns, self._epoch_ns)
        except OSError as error:
            _LOGGER.error("traces cannot be written: %s", error)


def _write(path: Path, traces: Sequence[Trace], origin_ns: int, epoch_ns: int) -> None:
    events = [event for pid, trace in enumerate(traces) for event in trace.events(pid, origin_ns, epoch_ns)]
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}), encoding="utf-8")


def _described(tensors: Mapping[str, InferTensor]) -> list[str]:
    return [f"{name}: {each.datatype} {list(each.array.shape)}" for name, each in tensors.items()]


def _name(what: str, name: str, pid: int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": 0, "args": {"name": name}}


def check_model(repository: ReadyModels, name: str) -> None:
    """Raise InvalidArgumentError where *name*, whose settings are asked for, is no model; "" is for all."""
    if name and not repository.is_model_ready(name):
        raise InvalidArgumentError(f"Request for unknown model : {name}")


def _checked(name: str, value: Sequence[str]) -> tuple[str, ...]:
    """The *value* of the setting *name*; InvalidArgumentError where it is none."""
    if name == LEVEL:
        levels = tuple(dict.fromkeys(value))
        if OFF in levels and len(levels) > 1:
            raise InvalidArgumentError("Expect only one trace level 'OFF' is specified")
        if not levels or not {*levels} <= {OFF, TIMESTAMPS, TENSORS}:
            raise InvalidArgumentError(f"'{LEVEL}' is some of OFF, TIMESTAMPS and TENSORS, not {list(levels)[:3]}")
        return levels
    if name not in (*_LEAST, _MODE):
        raise InvalidArgumentError(f"there is no trace setting '{name}'", hint=f"there are: {', '.join(_DEFAULTS)}")
    if len(value) != 1:
        raise InvalidArgumentError(f"expect only 1 value for '{name}', not {len(value)}")
    given = value[0]
    if name == _MODE:
        if given != "triton":
            raise InvalidArgumentError("'trace_mode' is 'triton': OpenTelemetry has its own settings")
        return (given,)
    digits = given.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < _MOST_DIGITS
    if not is_number or not _LEAST[name] <= int(given) <= _MOST:
        raise InvalidArgumentError(f"'{name}' is a number from {_LEAST[name]} to {_MOST}, not '{given[:20]}'")
    return (str(int(given)),)
