"""OnnxSession: a model that ONNX Runtime (extra ``ort``) has loaded.

Equal models share one, whichever sessions they are of.  To load one takes 10 to 500 milliseconds, so it is done on
threads other than that of an event loop.  A call gives up the GIL.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.cancellation import CancellationManager
from asyncexec.framework.errors import CancelledError
from asyncexec.framework.extras import is_installed, require
from asyncexec.process.cores import CoreBudget, call_on_first_core, core_budget, num_cores, other_cores
from asyncexec.process.gc_pause import paused_gc
from asyncexec.process.load_threads import LoadStop
from asyncexec.process.onnx_model import IR_VERSION, Dims, OnnxModel, Work

EXTRA: Final = "ort"
_SEVERITY_FATAL: Final = 4  # errors are raised, so that they need no line of their own
LONG: Final = 2e6  # multiplications from which on several threads are worth their start
_LONG_IN_LOOP: Final = 1e7  # and in an event loop, where a call is over before others have looked which cores are idle
_PATIENCE_S: Final = 1e-12  # for each multiplication: about a thirtieth of what that takes
_LIKELY: Final = 16  # of what is of a size that is not known, say the examples of a batch
_LEAST_PATIENCE_S: Final = 0.0001  # to sleep for less takes as long
_MOST_PATIENCE_S: Final = 0.002
_SPIN_US: Final = "1000"
_LOOK_S: Final = 0.02  # after which a load that waits for another looks whether it is still wanted
_LARGE: Final = 4096  # bytes of a constant from which on it is given beside the model
# Of the cores, so many are to be idle for a call of a thread on each: the call waits for the slowest at every node.
_IDLE_SHARE: Final = 0.75
_LOGGER: Final = logging.getLogger("asyncexec")


@cache
def has_onnx_runtime() -> bool:
    """Whether ONNX Runtime is installed, and what writes its models."""
    return is_installed("onnxruntime") and is_installed("onnx")


def onnx_runtime() -> Any:
    """The library; where nobody has loaded it before, it tells Microsoft nothing, unless the environment wants that.

    Its import holds the GIL for 20 milliseconds.
    """
    if "onnxruntime" not in sys.modules:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return require("onnxruntime", extra=EXTRA)


class OnnxSession:
    """A model that is loaded: once for calls of one thread, and a large one once more for calls of all cores.

    ONNX Runtime has no other way to tell a call how many threads it may take.  The two share the constants that it does
    not lay out anew.

    Args:
        data: the model; arrays: its large constants, by name.
        num_guards: as OnnxModel has it.
        work: that of a call, by which it is worth several threads.
        budget: tells which calls may take them.
        stop: ends the load.

    Attributes:
        lasting: what others keep beside it, as long as it is loaded.
    """

    __slots__ = (
        "__weakref__",
        "_arrays",
        "_budget",
        "_input_names",
        "_narrow",
        "_num_guards",
        "_num_wide",
        "_output_names",
        "_plain_options",
        "_runtime",
        "_spare_options",
        "_unknown",
        "_wide",
        "_work",
        "lasting",
    )

    def __init__(
        self,
        data: bytes,
        arrays: Mapping[str, Array],
        num_guards: int,
        *,
        work: Work,
        budget: CoreBudget = core_budget,
        stop: LoadStop | None = None,
    ) -> None:
        self._arrays = arrays  # ONNX Runtime takes their memory, and does not keep them
        self._budget = budget
        stop = stop or LoadStop()
        self._narrow = _opened(data, arrays, 1, stop)
        given = self._narrow.get_inputs()
        self._input_names = [each.name for each in given]
        self._output_names = [each.name for each in self._narrow.get_outputs()]
        self._runtime = onnx_runtime()
        self._plain_options = self._run_options()  # of all calls that nobody can end
        self._spare_options: list[Any] = []  # of calls that have ended
        unknown = ([axis for axis, size in enumerate(each.shape or ()) if type(size) is not int] for each in given)
        # The first input of a size that is not known, and the axes of that.
        self._unknown = next(
            ((name, axes) for name, axes in zip(self._input_names, unknown, strict=True) if axes), None
        )
        self._work = work
        is_large = work.on_threads(1 if self._unknown is None else _LIKELY) >= LONG
        self._num_wide = num_cores()  # threads of a wide call; a later caller may be bound to fewer cores
        self._wide = _opened(data, arrays, self._num_wide, stop) if is_large and self._num_wide > 1 else None
        self._num_guards = num_guards
        self.lasting: dict[Any, Any] = {}

    def run(self, inputs: Sequence[Any], manager: CancellationManager | None = None) -> list[Any] | None:
        """The outputs for *inputs*, or None where a guard says that they do not hold; *manager* ends the call.

        Raises:
            CancelledError: *manager* was cancelled.
            Exception: whatever ONNX Runtime raises.
        """
        feeds = dict(zip(self._input_names, map(np.asarray, inputs), strict=True))
        outputs = self._within_budget(feeds, self._plain_options) if manager is None else self._until(feeds, manager)
        if not self._num_guards:
            return outputs
        given, guards = outputs[: -self._num_guards], outputs[-self._num_guards :]
        return None if any(np.isnan(guard) for guard in guards) else given

    def _until(self, feeds: dict[str, object], manager: CancellationManager) -> list[Any]:
        """The outputs for *feeds*, unless *manager* ends the call."""
        try:
            options = self._spare_options.pop()
        except IndexError:
            options = self._run_options()
        token = manager.add_callback(partial(setattr, options, "terminate", True))
        if token is None:
            raise CancelledError("nobody waits for the call any more")
        try:
            outputs = self._within_budget(feeds, options)
        except Exception:
            if options.terminate:
                raise CancelledError("nobody waits for the call any more") from None
            raise
        finally:
            is_free = manager.deregister_callback(token)
        if is_free:
            self._spare_options.append(options)
        return outputs

    def _within_budget(self, feeds: dict[str, object], options: object) -> list[Any]:
        work = 0.0 if self._wide is None else self._work.on_threads(self._times(feeds))
        patience_s = min(_PATIENCE_S * work, _MOST_PATIENCE_S)
        if asyncio._get_running_loop() is not None:  # which is not to wait
            work, patience_s = (0.0 if work < _LONG_IN_LOOP else work), 0.0
        num_threads = self._budget.begin(
            is_large=work >= LONG, patience_s=patience_s if patience_s >= _LEAST_PATIENCE_S else 0.0
        )
        try:
            if self._wide is not None and num_threads >= _IDLE_SHARE * self._num_wide:
                return call_on_first_core(self._wide.run, self._output_names, feeds, options)
            return self._narrow.run(self._output_names, feeds, options)  # type: ignore[no-any-return]
        finally:
            self._budget.end()

    def _run_options(self) -> Any:
        options = self._runtime.RunOptions()
        options.log_severity_level = _SEVERITY_FATAL
        return options

    def _times(self, feeds: Mapping[str, Any]) -> int:
        """How much larger *feeds* are than if the sizes that are not known were 1."""
        if self._unknown is None:
            return 1
        name, axes = self._unknown
        shape, times = feeds[name].shape, 1
        for axis in axes:
            times *= shape[axis] if axis < len(shape) else 1  # with others, ONNX Runtime says why not
        return times


def _opened(data: bytes, arrays: Mapping[str, Array], num_threads: int, stop: LoadStop) -> Any:
    """The model as ONNX Runtime has it, for calls of *num_threads*; CancelledError where *stop* is set."""
    runtime = onnx_runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _SEVERITY_FATAL
    # Threads that sleep between two kernels of a call take 0.05 to 0.1 ms to wake; between calls none may spin.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.intra_op.spin_duration_us", _SPIN_US)  # new threads would spin for 30 ms
    if num_threads > 1 and (others := other_cores()):
        # A thread that may run anywhere is often woken where the caller is, and waits for 4 to 8 ms there.
        options.add_session_config_entry(
            "session.intra_op_thread_affinities", ";".join(str(1 + core) for core in others)
        )
    if arrays:
        values = [runtime.OrtValue.ortvalue_from_numpy(array) for array in arrays.values()]
        options.add_external_initializers(list(arrays), values)
    with stop.watching(options):
        return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


_sessions: Final[WeakValueDictionary[bytes, OnnxSession]] = WeakValueDictionary()
_loading: Final = threading.Lock()  # one after the other: what takes the GIL would not be quicker side by side


def load(model: OnnxModel, stop: LoadStop | None = None) -> OnnxSession:
    """*model*, loaded; the same as before where an equal one is.  It blocks: not for the event loop's thread.

    Raises:
        CancelledError: *stop* is set.
        MissingExtraError: onnxruntime or onnx is not installed: ``pip install "asyncexec[ort]"``.
        Exception: whatever ONNX Runtime raises where it does not take the model.
    """
    stop = stop or LoadStop()
    with _alone(stop):
        with paused_gc():  # it makes many objects, of which none is garbage before the end
            data, arrays = encoded(model)
        stop.check()
        digest = hashlib.blake2b(data, digest_size=32)
        for array in arrays.values():
            digest.update(array.data)
        key = digest.digest()
        session = _sessions.get(key)
        if session is None:
            session = OnnxSession(data, arrays, model.num_guards, work=model.work, stop=stop)
            _sessions[key] = session
        return session


@contextmanager
def _alone(stop: LoadStop) -> Iterator[None]:
    """While others load, wait, unless *stop* is set."""
    while not _loading.acquire(timeout=_LOOK_S):
        stop.check()
    try:
        yield
    finally:
        _loading.release()


def encoded(model: OnnxModel) -> tuple[bytes, dict[str, Array]]:
    """*model* as the bytes of a file, and the large constants, which are not in it: to write them holds the GIL long.

    Raises:
        MissingExtraError: onnx is not installed.
    """
    require("onnx", extra=EXTRA)
    helper, numpy_helper = require("onnx.helper", extra=EXTRA), require("onnx.numpy_helper", extra=EXTRA)
    names = {name: f"v{count}" for count, name in enumerate(_names(model))}  # equal models have equal names
    names[""] = ""  # an input that is left out
    inputs = [
        helper.make_tensor_value_info(names[name], helper.np_dtype_to_tensor_dtype(dtype), _sizes(names[name], dims))
        for name, dtype, dims in model.inputs
    ]
    nodes = [
        helper.make_node(
            node.op, [names[name] for name in node.inputs], [names[name] for name in node.outputs], **node.attrs
        )
        for node in model.nodes
    ]
    outputs = [helper.make_empty_tensor_value_info(names[name]) for name in model.outputs]
    constants, arrays = [], {}
    for name, array in model.constants.items():
        if array.nbytes < _LARGE:
            constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), names[name]))
            continue
        arrays[names[name]] = np.require(array, requirements=("C", "A"))
        constants.append(_outside(names[name], array))
    sizes = [
        helper.make_tensor_value_info(
            names[name],
            helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)),
            [_unknown_size(names[dim], 0) if isinstance(dim, str) else dim for dim in dims],
        )
        for name, dims in model.sizes.items()
    ]
    graph = helper.make_graph(nodes, "cluster", inputs, outputs, constants, value_info=sizes)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", model.opset)], ir_version=IR_VERSION)
    data: bytes = made.SerializeToString()
    return data, arrays


def _outside(name: str, array: Array) -> object:
    """What stands in a model for a constant that is given beside it."""
    proto = require("onnx", extra=EXTRA).TensorProto
    data_type = require("onnx.helper", extra=EXTRA).np_dtype_to_tensor_dtype(array.dtype)
    found = proto(name=name, dims=array.shape, data_type=data_type, data_location=proto.EXTERNAL)
    found.external_data.add(key="location", value=name)
    return found


def _sizes(name: str, dims: Dims | None) -> list[int | str] | None:
    """The *dims* of the input *name* as ONNX has them."""
    if dims is None:
        return None
    return [_unknown_size(name, axis) if dim is None else dim for axis, dim in enumerate(dims)]


def _unknown_size(name: str, axis: int) -> str:
    """What ONNX calls a size of the input *name*, so that it knows which others are equal."""
    return f"{name}_{axis}"


def _names(model: OnnxModel) -> dict[str, None]:
    """All names of *model*, in an order that its structure tells."""
    names = dict.fromkeys(name for name, _, _ in model.inputs)
    names.update(dict.fromkeys(model.constants))
    for node in model.nodes:
        names.update(dict.fromkeys((*node.inputs, *node.outputs)))
    return names


def tell_of_failure(what: str, error: Exception) -> None:
    """One line on a model that ONNX Runtime does not run."""
    _LOGGER.warning("ONNX Runtime does not run %s, so our own kernels do: %s: %s", what, type(error).__name__, error)
