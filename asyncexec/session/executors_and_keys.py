"""ExecutorsAndKeys: what a session keeps for each signature of feeds, fetches and targets it has run."""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from operator import call, itemgetter
from typing import Any

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.compilation.shared_inputs import is_user_function
from asyncexec.compilation.size_inputs import Sizes, find_sizes
from asyncexec.executor.plans.feed_growth import FeedGrowth
from asyncexec.executor.plans.region_plan import AnyExecutor
from asyncexec.executor.plans.tier import AnyPlan, Tier
from asyncexec.framework.cooperative import PART, STRIDE, Stage, in_parts, run_in_slices
from asyncexec.framework.errors import InvalidArgumentError, OpError
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_ends import MUST_BE_FED
from asyncexec.graph.node import Node, Tensor
from asyncexec.process.gc_pause import paused_gc
from asyncexec.pruning.prune import ClientGraph, path_to
from asyncexec.session.call_arguments import feed_tensors_stage, target_nodes_stage
from asyncexec.session.dead_fetches import why_dead
from asyncexec.session.fetch_mapper import Build, FetchMapper
from asyncexec.session.function_call_frame import Converter, convert_in_slices, feed_converter
from asyncexec.session.graph_execution_state import GraphExecutionState, PreparedGraph
from asyncexec.session.large_feeds import LargeFeedError
from asyncexec.session.outgoing import Giver, giver, may_be_scalar, python_scalar
from asyncexec.session.session_config import RunOptions
from asyncexec.session.text_fetches import text_fetches


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ExecutorsAndKeys:
    """One signature, ready to be run.

    Attributes:
        graph: what was made of it, stage by stage.
        feeds: the tensors fed, in the order of the values; fetches: those fetched, in the order of a step's values.
        converters: one for each feed.
        guarded: the same, for values that do not take long.
        is_in_order: whether values come in the order that a step has them in.
        executor: runs the steps.
        awaits: whether it has async kernels.
        tells_step: whether kernels may ask which step they are called for: users' functions, and what calls graphs.
        givers: by the positions of fetches, what makes the caller's value of what travels along edges.
        scalars: positions of fetches that may be numpy scalars, or text.
        python_scalars: whether a caller who does not say gets Python values for these.
        is_as_fetched: whether such a caller gets what travels along edges.
        build: puts the values of the fetches together.
        tier: which executor runs the steps.
    """

    graph: PreparedGraph
    feeds: tuple[Tensor, ...]
    fetches: tuple[Tensor, ...]
    converters: tuple[Converter, ...]
    guarded: tuple[Converter, ...]
    is_in_order: bool
    executor: AnyExecutor
    awaits: bool
    tells_step: bool
    givers: tuple[tuple[int, Giver], ...]
    scalars: tuple[int, ...]
    python_scalars: bool
    is_as_fetched: bool
    build: Build
    tier: Tier

    @property
    def client_graph(self) -> ClientGraph:
        return self.graph.client_graph

    def result(self, values: list[Any], options: RunOptions | None = None) -> Any:
        """The caller's nest, from the *values* that a step fetched."""
        for value in values:
            if value is NOTHING:
                raise self.missing_fetch(next(i for i, each in enumerate(values) if each is NOTHING))
        if self.is_as_fetched and options is None:
            return self.build(values)
        for position, give in self.givers:
            values[position] = give(values[position])
        wants_scalars = self.python_scalars
        if options is not None and options.python_scalars is not None:
            wants_scalars = options.python_scalars
        if wants_scalars:
            for position in self.scalars:
                values[position] = python_scalar(values[position])
        return self.build(values)

    def given(self, positions: Sequence[int], values: Sequence[Any]) -> list[Any]:
        """What the caller gets for the *values* of the fetches at *positions* alone."""
        found = dict(zip(positions, values, strict=True))
        for position, give in self.givers:
            if position in found:
                found[position] = give(found[position])
        if self.python_scalars:
            for position in found.keys() & set(self.scalars):
                found[position] = python_scalar(found[position])
        return [found[position] for position in positions]

    def missing_fetch(self, position: int) -> InvalidArgumentError:
        """The error that says why the fetch at *position* has no value."""
        tensor = self.client_graph.fetches[position]
        return InvalidArgumentError(
            f"fetch {tensor.name!r} does not have a value: {why_dead(tensor, self.client_graph)}",
            node=tensor.op,
            hint="fetch what cond or while_loop returns",
        )

    def convert(self, values: Collection[object]) -> list[Any]:
        """The *values* fed, one for each feed, as they travel along edges; LargeFeedError if that would take long."""
        if len(values) > PART:
            raise LargeFeedError
        return list(map(call, self.guarded, values))

    def convert_large(self, values: Sequence[object]) -> Stage[list[Any]]:
        """The same as a stage, however large they are."""
        converted: list[Any] = []
        for tensor, convert, value in zip(self.feeds, self.converters, values, strict=True):
            converted.append((yield from convert_in_slices(tensor, convert, value)))
            yield
        return converted


@dataclass(frozen=True, slots=True, eq=False)
class Permuted(ExecutorsAndKeys):
    """A signature that feeds and fetches what *base* does, in another order; ``build`` sees to that of the fetches.

    Attributes:
        order: for each feed of *base*, its position among the values that are given.
    """

    base: ExecutorsAndKeys
    order: Callable[[Sequence[Any]], Sequence[Any]]

    def convert(self, values: Collection[object]) -> list[Any]:
        return self.base.convert(self.order(list(values)))

    def convert_large(self, values: Sequence[object]) -> Stage[list[Any]]:
        return self.base.convert_large(self.order(values))

    @classmethod
    def of(cls, base: ExecutorsAndKeys, feeds: Sequence[Tensor], mapper: FetchMapper) -> ExecutorsAndKeys:
        """The signature of *feeds*, and of what *mapper* has read."""
        build = mapper.build
        fetch_order = _positions(mapper.tensors, base.fetches)
        if fetch_order != sorted(fetch_order):
            in_order = itemgetter(*fetch_order)
            build = lambda values: mapper.build(in_order(values))  # noqa: E731
        feed_order = _positions(base.feeds, feeds)
        if feed_order == sorted(feed_order):
            return replace(base, build=build)
        known = {field.name: getattr(base, field.name) for field in fields(base)}
        return cls(**{**known, "build": build, "is_in_order": False}, base=base, order=itemgetter(*feed_order))


def _positions(tensors: Sequence[Tensor], among: Sequence[Tensor]) -> list[int]:
    """Where each of *tensors* stands *among* others."""
    places = {_content_key(tensor): i for i, tensor in enumerate(among)}
    return [places[_content_key(tensor)] for tensor in tensors]


def _content_key(tensor: Tensor) -> tuple[Node, int]:
    return tensor.op, tensor.index


def build_executors(
    state: GraphExecutionState,
    graph: Graph,
    mapper: FetchMapper,
    feed_keys: Sequence[object],
    targets: Sequence[object],
    shared: MutableMapping[Any, ExecutorsAndKeys] | None = None,
    worker: str | None = None,
) -> Stage[ExecutorsAndKeys]:
    """What a session of *graph* keeps for the signature of what *mapper* has read, feeds and targets, as a stage.

    With a *worker*, its nodes prefer the devices of that.

    One that is in *shared*, in whatever order, and by whatever names, is not made again.

    Errors as of feed_tensors, target_nodes and GraphExecutionState.prepare.
    """
    feeds = yield from feed_tensors_stage(graph, feed_keys)
    nodes = yield from target_nodes_stage(graph, targets)
    content = None
    if shared is not None and len(feeds) + len(mapper.tensors) + len(mapper.targets) + len(nodes) <= PART:
        tensors = [frozenset(map(_content_key, each)) for each in (feeds, mapper.tensors)]
        content = (*tensors, frozenset([*mapper.targets, *nodes]))
        found = shared.get(content)
        if found is not None:
            return Permuted.of(found, feeds, mapper)
    made = yield from _make_executors(state, mapper, feeds, nodes, worker)
    if shared is not None and content is not None:
        shared[content] = made
    return made


def _make_executors(
    state: GraphExecutionState,
    mapper: FetchMapper,
    feeds: tuple[Tensor, ...],
    nodes: Sequence[Node],
    worker: str | None,
) -> Stage[ExecutorsAndKeys]:
    fetches = tuple(mapper.tensors)
    prepared = yield from state.prepare(feeds, fetches, [*mapper.targets, *nodes], worker=worker)
    converters: list[Converter] = []
    guarded: list[Converter] = []
    for count, tensor in enumerate(feeds):
        converters.append(feed_converter(tensor))
        guarded.append(feed_converter(tensor, is_guarded=True))
        if not count % STRIDE:
            yield
    fed: set[tuple[Node, int]] = set()
    for part in in_parts(feeds):
        fed.update([(tensor.op, tensor.index) for tensor in part])
        yield
    text = yield from text_fetches(fetches)
    givers: list[tuple[int, Giver]] = []
    scalars: list[int] = []
    for position, tensor in enumerate(fetches):
        is_reference = prepared.brings_references and tensor.dtype.is_ref and (tensor.op, tensor.index) not in fed
        give = giver(tensor, is_reference=is_reference, is_text=(tensor.op, tensor.index) in text)
        if give is not None:
            givers.append((position, give))
        if may_be_scalar(tensor):
            scalars.append(position)
        if not position % STRIDE:
            yield
    tells_step = prepared.executor.awaits
    for partition in prepared.partitions.values():
        for some in in_parts(partition.graph.nodes):
            tells_step = tells_step or any(map(is_user_function, some))
            yield
    tier = yield from _tier(state, prepared, feeds)
    return ExecutorsAndKeys(
        prepared,
        feeds,
        fetches,
        tuple(converters),
        tuple(guarded),
        True,
        prepared.executor,
        prepared.executor.awaits,
        tells_step,
        tuple(givers),
        tuple(scalars),
        state.python_scalars,
        not givers and not (scalars and state.python_scalars),
        mapper.build,
        tier,
    )


def _tier(state: GraphExecutionState, prepared: PreparedGraph, feeds: Sequence[Tensor]) -> Stage[Tier]:
    """The tier of the signature, as a stage; compiled, if it is to be before its first run."""
    if not (state.may_compile and prepared.may_be_compiled):
        return Tier(None)

    def compile_plan(*, optimizes: bool = False) -> Stage[AnyPlan | None]:
        return state.compile_plan(prepared, tier, optimizes=optimizes)

    varying: list[int] = []
    for count, tensor in enumerate(feeds):
        if tensor.shape.num_elements is None:
            varying.append(count)
        if not count % STRIDE:
            yield
    growth = None  # where nothing is measured, nothing is known
    if not state.compiles_at_once:
        whole = prepared.whole
        if whole is not None:
            sizes = yield from find_sizes(whole.graph.nodes, whole.graph.feeds)
        else:  # nothing tells which feeds of one partition may be sizes in another
            unknown: set[str] = set()
            for partition in prepared.partitions.values():
                unknown |= (yield from find_sizes(partition.graph.nodes, ())).unknown
            sizes = Sizes({}, frozenset(unknown))
        growth = FeedGrowth(feeds, [part.stats for part in prepared.executor.parts], sizes=sizes) or None
    tier = Tier(compile_plan, partial(compile_plan, optimizes=True), state.holds.clock, varying, growth)
    if state.compiles_at_once:
        yield from tier.compile_at_once()
    return tier


async def build_in_slices(
    state: GraphExecutionState,
    graph: Graph,
    mapper: FetchMapper,
    feed_keys: Sequence[object],
    targets: Sequence[object],
    shared: MutableMapping[Any, ExecutorsAndKeys] | None,
    worker: str | None = None,
) -> ExecutorsAndKeys:
    """What ``build_executors`` gives; others have the loop meanwhile."""
    with paused_gc():
        stage = build_executors(state, graph, mapper, feed_keys, targets, shared, worker)
        return await run_in_slices(stage, state.holds.clock)


def explained(error: OpError, prepared: ExecutorsAndKeys) -> OpError:
    """Where a placeholder was not fed, say which fetch or target needs it; name no nodes but the user's."""
    stand_in = prepared.graph.stand_ins.get(error.node or "")
    if stand_in is not None:
        return error.located(stand_in.name, stand_in.op, stand_in.user_line)
    if error.op in MUST_BE_FED and error.hint is None:
        node = next((node for node in prepared.client_graph.nodes if node.name == error.node), None)
        if node is not None:
            path = [step.name for step in path_to(node, prepared.client_graph)]
            shown = path if len(path) <= 8 else [*path[:4], "...", *path[-3:]]
            error.hint = f"it is needed by way of {' -> '.join(shown)}"
            error.args = (str(error),)
    return error
