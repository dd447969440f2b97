"""OnnxLoader: loads the model of a cluster, for the values that variables have.

A model that has been loaded holds for calls with the same values, which are kept here: they are replaced, and never
changed in place, so it is enough that they are the same objects.  A model is loaded for other values when these have
come a number of times in turn, which doubles from one load to the next: a program that changes variables all the time,
as training does, pays for few loads.  Where there is no model for a call, our own kernels are to run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from asyncexec.framework.errors import CancelledError
from asyncexec.passes.onnx_cluster import OnnxCluster
from asyncexec.process.gil_switches import quick_switches
from asyncexec.process.load_threads import LoadThreads
from asyncexec.process.onnx_model import OnnxModel
from asyncexec.process.onnx_session import OnnxSession, tell_of_failure

Load = Callable[[OnnxModel], OnnxSession]

_MOST_CALLS: Final = 2**20  # with the same values, before a model is loaded for them


class _Loaded(NamedTuple):
    session: OnnxSession
    values: Sequence[Any]


class OnnxLoader:
    """Loads the model of *cluster* with *load*: on one of *threads*, or where *waits*, in the call that needs it.

    Attributes:
        has_failed: whether ONNX Runtime does not run the cluster, so that no model is loaded any more.
    """

    __slots__ = (
        *("_cluster", "_is_loading", "_load", "_loaded", "_lock", "_num_calls", "_num_wanted", "_threads", "_values"),
        *("_waits", "has_failed"),
    )

    def __init__(self, cluster: OnnxCluster, load: Load, *, waits: bool, threads: LoadThreads | None = None) -> None:
        self._cluster = cluster
        self._load = load
        self._threads = LoadThreads() if threads is None else threads
        self._waits = waits
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None
        self._is_loading = False
        self._values: Sequence[object] = ()  # those of the last calls, for which there is no model
        self._num_calls = 0
        self._num_wanted = 1
        self.has_failed: bool = False

    @property
    def lasting(self) -> Mapping[Any, Any]:
        """What is kept beside the model; nothing where none is loaded."""
        loaded = self._loaded
        return {} if loaded is None else loaded.session.lasting

    @property
    def values(self) -> Sequence[Any]:
        """The values of variables that a model is loaded for."""
        loaded = self._loaded
        return () if loaded is None else loaded.values

    def load_ahead(self, values: Sequence[object]) -> None:
        """Load the model for *values* before the first call: that takes long."""
        with self._lock:
            if self.has_failed or self._is_loading or self._loaded is not None:
                return
            if len(values) != len(self._cluster.translation.variables):
                return
            thread = self._begin_loading(values)
        if thread is not None:
            thread.join()

    def session(self, values: Sequence[object]) -> OnnxSession | None:
        """What is loaded for *values*; None where nothing is."""
        loaded = self._loaded
        if loaded is not None and (not (values or loaded.values) or _are_same(loaded.values, values)):
            return loaded.session
        if self._waits:
            with self._lock:
                return self._loaded_now(values)
        with self._lock:
            if self._is_due(values):
                self._begin_loading(values)
        return None

    def _begin_loading(self, values: Sequence[object]) -> threading.Thread | None:
        self._is_loading = True
        try:
            return self._threads.start(self._load_for, values)
        except RuntimeError:  # there are no more threads; later there may be
            self._is_loading = False
            return None

    def give_up(self, error: Exception) -> None:
        """Load nothing any more, and tell why."""
        if not self.has_failed:
            self.has_failed = True
            self._loaded = None
            tell_of_failure(self._cluster.name, error)

    def _loaded_now(self, values: Sequence[object]) -> OnnxSession | None:
        loaded = self._loaded
        if loaded is None or not _are_same(loaded.values, values):
            if not self._is_due(values):
                return None
            self._load_for(values)
            loaded = self._loaded
        return None if loaded is None else loaded.session

    def _is_due(self, values: Sequence[object]) -> bool:
        """Whether a model is to be loaded for *values*, which a call has."""
        if self.has_failed or self._is_loading:
            return False
        if not (self._num_calls and _are_same(self._values, values)):
            self._values, self._num_calls = values, 0
        self._num_calls += 1
        if self._num_calls < self._num_wanted:
            return False
        self._values, self._num_calls = (), 0
        self._num_wanted = min(2 * self._num_wanted, _MOST_CALLS)
        return True

    def _load_for(self, values: Sequence[object]) -> None:
        self._loaded = None  # gone before the other takes memory
        try:
            with quick_switches():  # to translate and to write is Python: the event loop is not to wait for it
                self._loaded = _Loaded(self._load(self._cluster.translation.model(values)), values)
        except CancelledError:  # with its session
            pass
        except Exception as error:
            self.give_up(error)
        self._is_loading = False


def _are_same(one: Sequence[object], other: Sequence[object]) -> bool:
    return all(a is b for a, b in zip(one, other, strict=True))
