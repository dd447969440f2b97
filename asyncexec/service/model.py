"""Model: a version of a model that is served, which is a session of its graph with the names that clients know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncexec.compilation.shared_inputs import is_user_function
from asyncexec.framework.clock import CLOCK
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.frontend.basic_functions import placeholder
from asyncexec.frontend.batch import batch
from asyncexec.frontend.user_op import op
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Tensor
from asyncexec.service.classes import Labels, classified
from asyncexec.service.http_body import off_loop
from asyncexec.service.model_statistics import ModelStatistics
from asyncexec.service.queueing import AnswersInOrder, RequestQueues
from asyncexec.service.recent_calls import RecentCalls
from asyncexec.service.requests import US_PER_S, InferRequest, InferResponse, InferTensor, OutputOptions
from asyncexec.service.response_cache import ResponseCache, content_key
from asyncexec.service.signature import Signature, TensorSpec, missing_inputs
from asyncexec.session.direct_session import Session
from asyncexec.session.session_config import RunOptions, SessionConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ASYNC_GRACE_S: Final = 5.0  # for what goes on though it has been cancelled, when the service ends
_IN_BATCH: Final = "waited for its batch"
_MOST_WARM: Final = 2**20  # elements of a tensor that a config asks to be made for warming up


class Model:
    """One version of a model.

    Args:
        name, version: what clients call it.
        graph: what it computes.
        signature: its inputs and outputs.
        config: its ModelConfig.  ``max_batch_size`` and ``dynamic_batching`` make one run of the rows of many calls,
            as ``ax.batch`` does; its queue policies say which calls have their turn first, how many may wait, and for
            how long.
        max_concurrent: the largest number of runs at once; None for as many as come.
        labels: of the elements of outputs, for callers who ask for classes.
        cache: where its answers are kept; None for nowhere.

    Attributes:
        statistics: what it has done.
        recent: what its last calls were like.
        is_decoupled: whether it may answer a call with none or several responses.
    """

    is_decoupled: bool = False

    def __init__(
        self,
        name: str,
        version: str,
        graph: Graph,
        signature: Signature,
        config: Any,
        *,
        max_concurrent: int | None = None,
        labels: Labels | None = None,
        cache: ResponseCache | None = None,
    ) -> None:
        self.name: str = name
        self.version: str = version
        self.signature: Signature = signature
        self.config: Any = config
        self.statistics: ModelStatistics = ModelStatistics()
        self.recent: RecentCalls = RecentCalls()
        self._labels: Labels = labels or {}
        self._cache = cache
        self._most_rows: int = config.max_batch_size
        self._queues = RequestQueues(config.dynamic_batching)
        self._in_order = AnswersInOrder() if config.dynamic_batching.preserve_ordering else None
        count = max_concurrent or sum(max(1, group.count) for group in config.instance_group) or None
        session_config = SessionConfig(
            async_grace_s=_ASYNC_GRACE_S,
            max_concurrent_steps=count,
            node_statistics=any(map(is_user_function, graph.operations)),  # nobody's op is timed where there is none
        )
        self.session: Session = Session(graph, session_config)
        self._all_outputs = list(signature.outputs.values())
        self._held = _Held(self)
        self._num_calls = 0  # under way; a session that counts them itself takes longer for each
        self._has_ended: asyncio.Event | None = None
        self._batches: _Batches | None = None
        batching = self._batching()
        if batching is not None and config.max_batch_size > 1:
            inputs, outputs = self._tensors()
            self._batches = _Batches(self, inputs, outputs, batching, count or 1)

    async def infer(self, request: InferRequest, metadata: RunMetadata | None = None) -> InferResponse:
        """The answer to *request*; with *metadata*, the call is traced there, and is no part of a batch.

        Raises:
            InvalidArgumentError: its inputs or outputs are not those of the model.
            UnavailableError: too many calls wait, or it has waited for longer than the config allows.
            DeadlineExceededError: it took longer than it allows.
            OpError: what the graph raises.
        """
        begin_ns = CLOCK.now_ns()
        self._num_calls += 1
        try:
            wanted = self._outputs(request.outputs)
            feeds = self._feeds(request)
            ready_ns = CLOCK.now_ns()
            values = await self._values(request, wanted, feeds, metadata)
            done_ns = CLOCK.now_ns()
            outputs = {spec.name: as_output(spec, value) for spec, value in zip(wanted, values, strict=True)}
            if request.output_options is not None:
                outputs = await self._as_wanted(outputs, request.output_options)
        except asyncio.CancelledError:
            self.statistics.note_cancelled(CLOCK.now_ns() - begin_ns)
            raise
        except BaseException as error:
            self.statistics.note_failure(CLOCK.now_ns() - begin_ns)
            self.recent.note_failure(error)
            raise
        finally:
            self._let_go()
        rows = self._num_rows(request)
        self.statistics.note_success(rows, begin_ns, ready_ns, done_ns, CLOCK.now_ns())
        self.recent.note(done_ns - begin_ns)
        return InferResponse(self.name, self.version, request.id, outputs)

    async def responses(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """The answers to *request*, as they are ready; errors as of infer().  Close it where it is left early."""
        yield await self.infer(request)

    async def _as_wanted(
        self, outputs: dict[str, InferTensor], options: Mapping[str, OutputOptions]
    ) -> dict[str, InferTensor]:
        """*outputs*, of which those that *options* say so of are classes."""
        counts = {name: each.num_classes for name, each in options.items() if each.num_classes}
        if not counts:
            return outputs

        def of(name: str) -> InferTensor:
            labels = self._labels.get(name, ())
            return classified(name, outputs[name], counts[name], labels, has_batch=self._most_rows > 0)

        size = sum(outputs[name].array.nbytes for name in counts)
        return outputs | await off_loop(size, lambda: {name: of(name) for name in counts})

    def held(self) -> AbstractContextManager[None]:
        """The model is not closed before the block ends: for a caller that has something to do before."""
        return self._held

    def _hold(self) -> None:
        self._num_calls += 1

    def _let_go(self) -> None:
        self._num_calls -= 1
        if self._has_ended is not None and not self._num_calls:
            self._has_ended.set()

    @property
    def unready_reason(self) -> str | None:
        """Why it cannot be called, though it is loaded; None where it can."""
        return None

    @property
    def num_runs(self) -> int:
        """How often its graph has run: once for each call, or for each batch."""
        return self.session.statistics().completed_steps

    @property
    def num_waiting(self) -> int:
        """The calls that wait for their batch, up to 100."""
        return 0 if self._batches is None else self._batches.num_waiting

    @property
    def num_sequences(self) -> int:
        """The sequences of calls that have begun and not ended."""
        return 0

    @property
    def num_failures(self) -> int:
        """The calls that failed or were cancelled."""
        return self.statistics.fail.count + self.statistics.cancel.count

    async def warm_up(self) -> None:
        """Run what the config says it should be warmed up by."""
        for sample in self.config.model_warmup:
            inputs = {
                name: InferTensor(self._spec_of(name, "input").datatype, self._sample(name, each, sample.batch_size))
                for name, each in sample.inputs.items()
            }
            for _ in range(max(1, sample.count)):
                await self._warm(self._feeds(InferRequest(self.name, inputs)))

    async def _warm(self, feeds: Mapping[Tensor[Any], NDArray[Any]]) -> None:
        await self._run(list(self.signature.outputs.values()), feeds, None)

    async def close(self) -> None:
        """Take no more calls, and end when those under way have."""
        if self._num_calls:
            self._has_ended = asyncio.Event()
            await self._has_ended.wait()
        if self._cache is not None:
            self._cache.forget(self)
        if self._batches is not None:
            await self._batches.close()
        await self.session.close()

    def _batching(self) -> Any:
        """What the config says of batches; None where each call runs alone."""
        return self.config.dynamic_batching if self.config.HasField("dynamic_batching") else None

    def _tensors(self) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """What a run takes and gives."""
        return list(self.signature.inputs.values()), list(self.signature.outputs.values())

    def _values(
        self,
        request: InferRequest,
        wanted: Sequence[TensorSpec],
        feeds: Mapping[Tensor[Any], NDArray[Any]],
        metadata: RunMetadata | None,
    ) -> Awaitable[Sequence[Any]]:
        """The values of *wanted* for *request*, which feeds *feeds*."""
        options = self._queues.options(request)
        if self._cache is None or metadata is not None:
            run = self._run(wanted, feeds, options, metadata)
        else:
            run = self._run_or_cached(self._cache, wanted, feeds, options)
        return run if self._in_order is None else self._in_order.run(run, self._deadline_s(request))

    async def _run_or_cached(
        self,
        cache: ResponseCache,
        wanted: Sequence[TensorSpec],
        feeds: Mapping[Tensor[Any], NDArray[Any]],
        options: RunOptions | None,
    ) -> Sequence[Any]:
        begin_ns = CLOCK.now_ns()
        inputs = {tensor.name: array for tensor, array in feeds.items()}
        size = sum(array.nbytes for array in inputs.values())
        key = await off_loop(size, lambda: content_key(inputs, [spec.name for spec in wanted]))
        lookup_ns = CLOCK.now_ns() - begin_ns
        values, is_known = await cache.values(self, key, options, lambda shared: self._run(wanted, feeds, shared))
        (self.statistics.cache_hit if is_known else self.statistics.cache_miss).add(lookup_ns)
        return values

    async def _run(
        self,
        wanted: Sequence[TensorSpec],
        feeds: Mapping[Tensor[Any], NDArray[Any]],
        options: RunOptions | None,
        metadata: RunMetadata | None = None,
    ) -> Sequence[Any]:
        if metadata is not None:
            traced = (options or RunOptions()).model_copy(update={"trace": True})
            return await self.session.run([spec.tensor for spec in wanted], feeds, options=traced, metadata=metadata)
        run: Callable[..., Awaitable[Sequence[Any]]] = self.session.run
        if self._batches is not None and self._batches.takes(feeds):
            run, wanted_tensors, feeds = self._batches.run(wanted, feeds)
        else:
            wanted_tensors = [spec.tensor for spec in wanted]
        return await run(wanted_tensors, feeds, options=options)

    def _outputs(self, names: Sequence[str] | None) -> Sequence[TensorSpec]:
        if not names:
            return self._all_outputs
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"output '{max(names, key=names.count)}' already exists in request")
        return [self._spec_of(name, "output") for name in names]

    def _spec_of(self, name: str, role: str) -> TensorSpec:
        specs = self.signature.inputs if role == "input" else self.signature.outputs
        spec = specs.get(name)
        if spec is None:
            known = ", ".join(specs) or "none"
            raise InvalidArgumentError(
                f"unexpected inference {role} '{name}' for model '{self.name}'", hint=f"allowed {role}s are: {known}"
            )
        return spec

    def _feeds(self, request: InferRequest) -> dict[Tensor[Any], NDArray[Any]]:
        """What *request* feeds, checked."""
        specs, given = self.signature.inputs, request.inputs
        feeds: dict[Tensor[Any], NDArray[Any]] = {}
        for name, (datatype, array, _) in given.items():
            spec = specs.get(name) or self._spec_of(name, "input")
            if datatype != spec.datatype:
                raise InvalidArgumentError(
                    f"inference input '{name}' data-type is '{datatype}', but model '{self.name}' expects "
                    f"'{spec.datatype}'"
                )
            shape = array.shape
            if not spec.takes(shape):
                expected, got = (",".join(map(str, sizes)) for sizes in (spec.shape or (), shape))
                raise InvalidArgumentError(
                    f"unexpected shape for input '{name}' for model '{self.name}'. Expected [{expected}], got [{got}]."
                )
            feeds[spec.tensor] = array if spec.inner_shape is None else spec.to_graph(array)
        if len(given) < len(specs):
            self._check_missing(given)
        if self._most_rows > 0:
            self._check_rows(request)
        return feeds

    def _check_missing(self, given: Collection[str]) -> None:
        specs = self.signature.inputs
        missing = [name for name, spec in specs.items() if name not in given and not spec.is_optional]
        if missing:
            raise missing_inputs(self.name, specs, given, missing)

    def _check_rows(self, request: InferRequest) -> None:
        limit = self._most_rows
        sizes = {name: value.array.shape[:1] for name, value in request.inputs.items()}
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{name} has {list(size)}" for name, size in sizes.items())
            raise InvalidArgumentError(f"inputs of model '{self.name}' differ in their batch size: {told}")
        rows = self._num_rows(request)
        if rows > limit:
            raise InvalidArgumentError(
                f"inference request batch-size must be <= {limit} for '{self.name}', and is {rows}"
            )

    def _num_rows(self, request: InferRequest) -> int:
        if self._most_rows <= 0:
            return 1
        return next((value.array.shape[0] for value in request.inputs.values() if value.array.ndim), 1)

    def _deadline_s(self, request: InferRequest) -> float | None:
        options = self._queues.options(request)
        return None if options is None else options.timeout

    def _sample(self, name: str, each: Any, rows: int) -> NDArray[Any]:
        shape = [*([max(1, rows)] if self.config.max_batch_size > 0 else []), *each.dims]
        dtype = self._spec_of(name, "input").tensor.dtype.base_dtype.as_numpy_dtype
        if min(shape, default=1) < 0 or np.prod([*shape], dtype=object) > _MOST_WARM:
            raise InvalidArgumentError(f"model '{self.name}' cannot be warmed up with '{name}' of the shape {shape}")
        if dtype.kind == "O":
            return np.full(shape, b"", object)
        return np.zeros(shape, dtype)


class _Held:
    """Counts those who hold *model*."""

    __slots__ = ("_model",)

    def __init__(self, model: Model) -> None:
        self._model = model

    def __enter__(self) -> None:
        self._model._hold()

    def __exit__(self, *_: object) -> None:
        self._model._let_go()


def check_one_response(model: Model, protocol: str) -> None:
    """UnimplementedError where *model* may give another number of responses than the one that *protocol* carries."""
    if model.is_decoupled:
        raise UnimplementedError(f"{protocol} doesn't support models with decoupled transaction policy")


class _Batches:
    """One run of a model for the rows of many calls: a graph around its session, whose only op is ``ax.batch``."""

    def __init__(
        self,
        model: Model,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        batching: Any,
        max_running: int,
    ) -> None:
        config, inner = model.config, model.session
        self._inputs = inputs
        self._outputs = {spec.name: i for i, spec in enumerate(outputs)}
        fetches = [spec.tensor for spec in outputs]
        tensors = [spec.tensor for spec in self._inputs]

        @op(outputs=[tensor.dtype for tensor in fetches])
        async def run_model(*values: Any) -> Any:
            model.recent.batches[len(values[0])] += 1
            results = await inner.run(fetches, dict(zip(tensors, values, strict=True)))
            return tuple(results) if len(results) > 1 else results[0]

        preferred = sorted(batching.preferred_batch_size)
        most = min(config.max_batch_size, preferred[-1]) if preferred else config.max_batch_size

        @batch(
            max_size=most,
            timeout_s=batching.max_queue_delay_microseconds / US_PER_S,
            max_running=max_running,
        )
        def rows(*values: Any) -> Any:
            return run_model(*values)

        with Graph() as graph:
            self._fed = {
                spec.tensor: placeholder(spec.tensor.dtype, _sizes(spec), name=f"input_{i}")
                for i, spec in enumerate(self._inputs)
            }
            found = rows(*self._fed.values())
        self._results = list(found) if isinstance(found, (list, tuple)) else [found]
        self._session = Session(graph)

    @property
    def num_waiting(self) -> int:
        """The calls that wait for their batch, up to 100."""
        return sum(_IN_BATCH in node.waits_for for node in self._session.statistics().under_way)

    def takes(self, feeds: Mapping[Tensor[Any], Any]) -> bool:
        """Whether a call that feeds *feeds* can be a part of a batch: it feeds all there is, and has rows."""
        return len(feeds) == len(self._inputs) and all(value.ndim and len(value) for value in feeds.values())

    def run(self, wanted: Sequence[TensorSpec], feeds: Mapping[Tensor[Any], Any]) -> tuple[Any, Any, Any]:
        """What runs instead of the model's session, and what is fetched from it and fed."""
        fetches = [self._results[self._outputs[spec.name]] for spec in wanted]
        return self._session.run, fetches, {self._fed[tensor]: value for tensor, value in feeds.items()}

    async def close(self) -> None:
        await self._session.close()


def _sizes(spec: TensorSpec) -> list[int | None] | None:
    shape = spec.inner_shape or spec.shape
    return None if shape is None else [None, *(None if size < 0 else size for size in shape[1:])]


def as_output(spec: TensorSpec, value: Any) -> InferTensor:
    """*value*, which a graph has given, as the output that *spec* describes."""
    found = as_tensor(spec.datatype, value)
    return found if spec.inner_shape is None else InferTensor(spec.datatype, spec.from_graph(found.array))


def as_tensor(datatype: str, value: Any) -> InferTensor:
    """*value*, which a graph has given, as a tensor of *datatype*."""
    if isinstance(value, (bytes, str)):
        array = np.empty((), object)
        array[()] = value
    else:
        array = np.asarray(value)
    return InferTensor(datatype, array)
