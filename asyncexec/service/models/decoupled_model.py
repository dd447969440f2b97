"""DecoupledModel: a model that answers a call with as many responses as a stream of its graph has items.

The sources of the graph (``ax.source``) are drawn from anew for each call.  One that is made of a function gets the
inputs of the call that it has parameters for.  Each item feeds all inputs of the call, and a value of each source.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from asyncexec.framework.clock import CLOCK
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.errors import DeadlineExceededError, InternalError, InvalidArgumentError, OpError
from asyncexec.framework.spans import Hook
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.frontend.stream_functions import drawing, values_of
from asyncexec.frontend.user_op_parameters import conversions
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Tensor
from asyncexec.service.models.classes import Labels
from asyncexec.service.models.model import Model
from asyncexec.service.models.outputs import as_output
from asyncexec.service.models.signature import Signature, TensorSpec
from asyncexec.service.observing.call_record import current_call
from asyncexec.service.requests import InferRequest, InferResponse
from asyncexec.session.stream_plan import find_stream_nodes
from asyncexec.session.workers import Cluster

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

WINDOW: Final = 16  # items of a call that are ahead of what the client has taken
_REST: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_NOT_ONE: Final = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various number "
    "of responses"
)


class DecoupledModel(Model):
    """One version of a model that has *sources*, or whose config says that it is decoupled.

    Without sources, each call has one response.

    Raises:
        InvalidArgumentError: the function of a source has a parameter that is no input.
    """

    is_decoupled = True
    may_answer_at_once = False

    def __init__(
        self,
        name: str,
        version: str,
        graph: Graph,
        signature: Signature,
        config: object,
        sources: Iterable[Tensor[Any]],
        *,
        labels: Labels | None = None,
        hooks: Sequence[Hook] = (),
        cluster: Cluster | None = None,
    ) -> None:
        self._sources = [_Source(tensor, signature) for tensor in sources]
        super().__init__(name, version, graph, signature, config, labels=labels, hooks=hooks, cluster=cluster)

    async def infer(
        self, request: InferRequest, metadata: RunMetadata | None = None, *, is_part: bool = False
    ) -> InferResponse:
        """The only response to *request*; InvalidArgumentError where there is none, or another.

        The nodes of a stream are not traced.
        """
        if not self._has_items:
            return await super().infer(request, metadata, is_part=is_part)
        found: list[InferResponse] = []
        async with aclosing(self._responses(request, is_part=is_part)) as responses:
            async for response in responses:
                found.append(response)
                if len(found) > 1:
                    break
        if len(found) != 1:
            raise InvalidArgumentError(_NOT_ONE)
        return found[0]

    @property
    def _has_items(self) -> bool:
        """Whether a call has items, and not one response of one run."""
        return bool(self._sources)

    async def responses(self, request: InferRequest, *, is_part: bool = False) -> AsyncGenerator[InferResponse, None]:
        if not self._has_items:
            yield await super().infer(request, is_part=is_part)
            return
        async with aclosing(self._responses(request, is_part=is_part)) as responses:
            async for response in responses:
                yield response

    async def _responses(self, request: InferRequest, *, is_part: bool) -> AsyncGenerator[InferResponse, None]:
        """The responses of a model with sources.

        A call is one run: the time until the next values are there, all together.  The rest is output, also the time
        that the client takes.
        """
        begin_ns, ready_ns, infer_ns = CLOCK.now_ns(), 0, 0
        call = None if is_part else current_call.get()
        trace = None if call is None else call.begin_inference(self.name, self.version, request)
        response = InferResponse(self.name, self.version, request.id, {})
        self._hold()
        try:
            wanted, feeds = self._checks.outputs(request.outputs), self._checks.feeds(request)
            ready_ns = since_ns = CLOCK.now_ns()
            async with aclosing(self._results(wanted, feeds, self._deadline_s(request))) as results:
                async for values in results:
                    infer_ns += CLOCK.now_ns() - since_ns
                    outputs = {spec.name: as_output(spec, value) for spec, value in zip(wanted, values, strict=True)}
                    if request.output_options is not None:
                        outputs = await self._as_wanted(outputs, request.output_options)
                    response = InferResponse(self.name, self.version, request.id, outputs)
                    yield response
                    since_ns = CLOCK.now_ns()
                infer_ns += CLOCK.now_ns() - since_ns
        except BaseException as error:
            self._note_failure(begin_ns, error, trace, has_begun=ready_ns > 0, is_part=is_part)
            raise
        finally:
            self._let_go()
        rows = self._checks.num_rows(request)
        self.statistics.note_run(rows, infer_ns)
        times = begin_ns, ready_ns, ready_ns, ready_ns + infer_ns, CLOCK.now_ns(), rows
        self._note_success(rows, times, trace, response)

    async def _results(
        self, wanted: Iterable[TensorSpec], feeds: Mapping[Tensor[Any], Array], timeout_s: float | None
    ) -> AsyncGenerator[Any, None]:
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        async with self.session.map([spec.tensor for spec in wanted], self._items(feeds), window=WINDOW) as results:
            while True:
                scope = asyncio.timeout_at(deadline)
                try:
                    async with scope:
                        values = await anext(results)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    if not scope.expired():
                        raise
                    raise DeadlineExceededError(f"the call took more than its timeout of {timeout_s:g} s") from None
                yield values

    async def _items(self, feeds: Mapping[Tensor[Any], Array]) -> AsyncGenerator[Mapping[Tensor[Any], object], None]:
        """The items of a call that feeds *feeds*: here, until the first of the sources ends."""
        async with AsyncExitStack() as stack:
            drawn = [(each, await stack.enter_async_context(drawing(each.values(feeds)))) for each in self._sources]
            while True:
                item: dict[Tensor[Any], object] = dict(feeds)
                for source, values in drawn:
                    try:
                        item[source.tensor] = await anext(values)
                    except StopAsyncIteration:
                        return
                    except OpError:
                        raise
                    except Exception as error:
                        told = f"{type(error).__name__}: {error}"
                        raise InternalError(told, node=source.tensor.op) from error
                yield item

    async def _warm(self, feeds: Mapping[Tensor[Any], Array]) -> None:
        if not self._has_items:
            await super()._warm(feeds)
            return
        async with aclosing(self._results(self.signature.outputs.values(), feeds, None)) as results:
            await anext(results, None)  # the first: a source may go on for ever


class _Source:
    """What *tensor*, the output of a source, is drawn from."""

    def __init__(self, tensor: Tensor[Any], signature: Signature) -> None:
        self.tensor: Tensor[Any] = tensor
        self._values = values_of(tensor.op)
        self._parameters: list[tuple[str, Tensor[Any], Callable[[Any], Any]]] = []
        for name, parameter in _parameters(self._values).items():
            spec = signature.inputs.get(name)
            is_needed = parameter.default is parameter.empty and parameter.kind not in _REST
            if is_needed and (spec is None or spec.is_optional):
                known = ", ".join(signature.inputs) or "none"
                raise InvalidArgumentError(
                    f"the function of source '{tensor.op.name}' needs '{name}', which is no input that each call has",
                    hint=f"the inputs are: {known}",
                )
            if spec is not None:
                convert = dict(conversions(self._values, 1, [name])).get(0, _as_it_is)
                self._parameters.append((name, spec.tensor, convert))

    def values(self, feeds: Mapping[Tensor[Any], Array]) -> Any:
        """What a call that feeds *feeds* draws from."""
        given = {name: convert(feeds[tensor][()]) for name, tensor, convert in self._parameters if tensor in feeds}
        return partial(self._values, **given) if given else self._values


def _parameters(values: object) -> Mapping[str, inspect.Parameter]:
    """The parameters of the function that makes the values of a source, if one does."""
    if not callable(values) or isinstance(values, (AsyncIterable, Iterable)):
        return {}
    try:
        return inspect.signature(values).parameters
    except ValueError:  # of a class in C, say
        return {}


def _as_it_is(value: object) -> object:
    return value


def sources_of(graph: Graph, signature: Signature) -> tuple[Tensor[Any], ...]:
    """The sources that the outputs of a model depend on."""
    fed = frozenset(spec.tensor.op for spec in signature.inputs.values())
    fetched = [spec.tensor.op for spec in signature.outputs.values()]
    return run_at_once(find_stream_nodes(graph, fetched, fed)).sources
