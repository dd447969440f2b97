"""What callers of a session's methods give, made uniform, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from asyncexec.framework.cooperative import STRIDE, Stage, run_at_once
from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError, InvalidTypeError, OpError
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.session.fetch_mapper import element, structure_key
from asyncexec.session.fetch_types import Feeds
from asyncexec.session.function_call_frame import fed_tensor
from asyncexec.session.session_config import RunOptions

TARGETS: Final = object()  # stands between feeds and targets in the key of a signature


def as_tuple(targets: Any) -> tuple[Any, ...]:
    """*targets*, one or several; InvalidTypeError if they are nothing of the kind."""
    if isinstance(targets, (str, Tensor, Node)):
        return (targets,)
    try:
        return tuple(targets)
    except TypeError:
        raise InvalidTypeError(f"targets is {type(targets).__name__} {targets!r}, not a list of operations") from None


def as_feed_keys(feeds: object) -> tuple[Any, ...]:
    """The keys of what a partial run may be fed; InvalidTypeError if there are values, too."""
    if isinstance(feeds, Mapping):
        raise InvalidTypeError("a partial run begins with the names of its feeds, not their values", hint="list(feeds)")
    return as_tuple(feeds)


def checked_options(options: object, *, has_journal: bool = True) -> RunOptions:
    """*options*, if they are RunOptions; else InvalidTypeError.

    FailedPreconditionError if they ask for a journal that the session has not.
    """
    if isinstance(options, RunOptions):
        if options.run_id is not None and not has_journal:
            raise FailedPreconditionError(
                f"the run {options.run_id!r} needs a session with a journal", hint="ax.Session(graph, journal=store)"
            )
        return options
    raise InvalidTypeError(
        f"options is {type(options).__name__} {options!r}, not RunOptions", hint="ax.RunOptions(timeout=1.0)"
    )


def feed_tensors(graph: Graph, keys: Sequence[object]) -> tuple[Tensor, ...]:
    """The tensors of *graph* that *keys* mean; errors as of fed_tensor, and where one is fed twice."""
    return run_at_once(feed_tensors_stage(graph, keys))


def feed_tensors_stage(graph: Graph, keys: Sequence[object]) -> Stage[tuple[Tensor, ...]]:
    """The same as a stage."""
    feeds: dict[tuple[Node, int], Tensor] = {}
    for start in range(0, len(keys), STRIDE):
        for key in keys[start : start + STRIDE]:
            tensor = fed_tensor(graph, key)
            if (tensor.op, tensor.index) in feeds:
                raise InvalidArgumentError(f"tensor {tensor.name!r} is fed more than once", node=tensor.op)
            feeds[tensor.op, tensor.index] = tensor
        yield
    return tuple(feeds.values())


def target_nodes(graph: Graph, targets: Iterable[object]) -> list[Node]:
    """The operations of *graph* that *targets* mean; errors as of element."""
    return run_at_once(target_nodes_stage(graph, as_tuple(targets)))


def target_nodes_stage(graph: Graph, targets: Sequence[object]) -> Stage[list[Node]]:
    """The same as a stage."""
    nodes: list[Node] = []
    for start in range(0, len(targets), STRIDE):
        found = [element(graph, target, "target") for target in targets[start : start + STRIDE]]
        nodes += [target.op if isinstance(target, Tensor) else target for target in found]
        yield
    return nodes


def read_call(fetches: object, feeds: Feeds, targets: Sequence[object]) -> tuple[tuple[Any, ...], Any]:
    """What the executors of a run are cached by, and the values of its feeds.

    A mapping that is no dict is read here and now, where its errors are the caller's.

    OpError if the arguments are not what they look like.
    """
    try:
        values = feeds.values()
        keys: Collection[Any] = feeds if type(feeds) is dict else tuple(feeds)
        kind = type(fetches)
        wanted = fetches if kind is Tensor or kind is str else structure_key(fetches)
        key = (wanted, *keys) if not targets else (wanted, *keys, TARGETS, *map(structure_key, targets))
    except (AttributeError, RecursionError) as error:
        raise bad_call(feeds, error) from None
    return key, values if keys is feeds else _read_values(keys, values)


def _read_values(keys: Collection[object], values: Iterable[object]) -> tuple[Any, ...]:
    found = tuple(values)
    if len(found) != len(keys):
        raise InvalidArgumentError(f"feeds has {len(keys)} keys and {len(found)} values")
    return found


def bad_call(feeds: object, error: Exception) -> OpError:
    """What is wrong with a call of run() whose arguments are not what they look like."""
    if isinstance(error, RecursionError):
        return InvalidArgumentError("the fetches are nested too deeply")
    return InvalidTypeError(f"feeds is {type(feeds).__name__} {feeds!r}, not a mapping of tensors to values")
