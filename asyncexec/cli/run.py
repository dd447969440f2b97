"""``asyncexec run``: loads a graph, feeds it, runs it once, and shows or stores what was fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import asyncexec as ax
from asyncexec.cli.feeds import feed_value, parse_device_count, parse_feeds
from asyncexec.cli.reporting import (
    MOST_ROWS,
    DebugOption,
    check_folder,
    failures_reported,
    output_console,
    print_table,
)
from asyncexec.framework.errors import InvalidArgumentError

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array
    from asyncexec.graph.graph import Graph
    from asyncexec.graph.node import Tensor

LONGEST_VALUE: Final = 1_000  # characters of a value that is printed
DEFAULT_SIGNATURE: Final = "serving_default"
_WIDER: Final = {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8"}


def run(
    graph_path: Annotated[
        Path, typer.Argument(metavar="GRAPH", exists=True, help="A GraphDef: .pb (binary), .pbtxt or .json.")
    ],
    feed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="The value of a tensor: JSON, @FILE.npy or @FILE.npz:KEY. May be given many times.",
        ),
    ] = None,
    fetch: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A tensor to get; without any, all that no other node consumes."),
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="An operation to run without getting anything from it.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="OUT.npz", dir_okay=False, help="Where to store what was fetched.")
    ] = None,
    device_count: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=COUNT", help="How many devices of a type, such as CPU=2.")
    ] = None,
    memory_limit: Annotated[
        int | None, typer.Option(metavar="BYTES", min=1, help="The most that the arrays of the run may take.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="T.json", dir_okay=False, help="Where to write a timeline for ui.perfetto.dev."),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Run a graph once and show what was fetched.

    For example: asyncexec run model.pb --feed x=[[1,2,3]] --fetch probabilities
    """
    config = ax.SessionConfig(
        device_count=dict(parse_device_count(device_count or ())) or {"CPU": 1}, memory_limit=memory_limit
    )
    feed_arguments = parse_feeds(feed or ())
    check_folder(output, "--output")
    check_folder(trace, "--trace")
    with failures_reported(debug) as console:
        with console.status("loading the graph"):
            model = ax.load_model(graph_path)
            graph = model.graph
        tensors = [graph.tensor(item.tensor_name) for item in feed_arguments]
        feeds: dict[Tensor | str, object] = {
            t: feed_value(item, t.dtype) for t, item in zip(tensors, feed_arguments, strict=True)
        }
        names = [tensor_name(graph, name) for name in fetch or ()]
        if not names and not target:
            signature = model.signatures.get(DEFAULT_SIGNATURE) or next(iter(model.signatures.values()))
            names = [info.name for info in signature.outputs.values()]
        metadata = ax.RunMetadata()
        with console.status("running"):
            values = execute(model, names, feeds, target or (), config, metadata, is_traced=trace is not None)
        if trace is not None:
            metadata.save_trace(trace)
        if output is not None:
            store(output, dict(zip(names, values, strict=True)))
    print_results(graph, names, values)


def tensor_name(graph: Graph, name: str) -> str:
    """The tensor that *name* means: itself, or the first output of the operation of that name."""
    return name if ":" in name or not graph.operation(name).outputs else f"{name}:0"


def execute(
    model: ax.Model,
    fetches: Sequence[str],
    feeds: Mapping[Tensor | str, object],
    targets: Sequence[str],
    config: ax.SessionConfig,
    metadata: ax.RunMetadata,
    *,
    is_traced: bool,
) -> list[Any]:
    """One step of *model* in a session of its own, its variables restored."""

    async def main() -> list[Any]:
        async with ax.Session(model.graph, config=config) as session:
            await model.initialize(session)
            values: list[object] = await session.run(
                list(fetches), feeds, targets=targets, options=ax.RunOptions(trace=is_traced), metadata=metadata
            )
            return values

    return ax.run(main)


def store(path: Path, values: Mapping[str, object]) -> None:
    """Write *values* as an .npz file that can be read without pickle.

    Strings become arrays of fixed width, floats of ml_dtypes float32, integers of ml_dtypes integers of 8 bits.

    Raises:
        InvalidArgumentError: a string ends in NUL, which such an array would lose; a value is no tensor.
    """
    import numpy as np

    arrays: dict[str, Any] = {
        name: _storable(name, np.asarray(v, object if isinstance(v, bytes) else None))
        for name, v in values.items()
        if v is not None
    }
    with path.open("wb") as file:
        np.savez(file, **arrays)


def _storable(name: str, array: Array) -> Array:
    if array.dtype.kind == "V":  # of ml_dtypes, whose names numpy's files do not keep
        return array.astype(_WIDER.get(array.dtype.name, "float32"))
    if array.dtype.kind not in "OS":
        return array
    for item in array.flat:
        if not isinstance(item, bytes):
            raise InvalidArgumentError(f"{name} cannot be stored: {type(item).__name__} is no tensor")
        if item.endswith(b"\0"):
            raise InvalidArgumentError(f"{name} cannot be stored: a string in it ends in NUL, which .npz files lose")
    return array.astype("S")


def print_results(graph: Graph, names: Sequence[str], values: Sequence[object]) -> None:
    """Print what was fetched: name, dtype, shape and value; the first rows, and large values shortened."""
    shown = zip(names[:MOST_ROWS], values[:MOST_ROWS], strict=True)
    rows = [_result_row(graph, name, value) for name, value in shown]
    print_table(output_console(), ("tensor", "dtype", "shape", "value"), rows, len(names) - len(rows))


def _result_row(graph: Graph, name: str, value: object) -> tuple[str, str, str, str]:
    import numpy as np

    if value is None:
        return name, "", "", "ran"
    array = np.asarray(value, object if isinstance(value, bytes) else None)
    if array.ndim:
        text = np.array2string(array, threshold=20, edgeitems=2, precision=6)
    else:
        text = str(value[:LONGEST_VALUE] if isinstance(value, (bytes, str)) else value)
    # Of a reference, the dtype of what it refers to.
    return name, graph.tensor(name).dtype.base_dtype.name, str(list(array.shape)), shortened(text)


def shortened(text: str) -> str:
    """The beginning of *text*."""
    return text if len(text) < LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
