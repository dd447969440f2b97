"""``asyncexec bench``: how long a model takes, how much it does a second, and which nodes take the time."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import asyncexec as ax
from asyncexec.cli.bench_beside import Beside, runner
from asyncexec.cli.bench_inputs import Values, make_inputs, parse_shapes
from asyncexec.cli.bench_measure import Measured, NodeCost, by_op, measure, node_costs
from asyncexec.cli.reporting import DebugOption, check_folder, failures_reported, output_console, print_table
from asyncexec.cli.run import DEFAULT_SIGNATURE
from asyncexec.framework.errors import NotFoundError
from asyncexec.importers.files import write_file

_MOST: Final = 4096  # of a batch, and of calls at a time
_MIB: Final = 2**20
_TRACED_STEPS: Final = 3


@dataclass(frozen=True, slots=True)
class BenchReport:
    """What ``--json`` writes."""

    model: str
    signature: str
    inputs: Mapping[str, str]  # dtype and shape of each, of the last batch
    rows: Sequence[Measured]
    nodes: Sequence[NodeCost]  # of the last batch
    ops: Sequence[NodeCost]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured."""

    signature: str | None
    batches: Sequence[int]
    concurrency: Sequence[int]
    seconds: float
    warmups: int
    feeds: Sequence[str]
    shapes: Mapping[str, Sequence[int]]
    values: Values


def bench(
    model_path: Annotated[
        Path,
        typer.Argument(metavar="MODEL", exists=True, help="A SavedModel, .onnx, .pnnx.param, .pb, .pbtxt or .json."),
    ],
    batch: Annotated[str, typer.Option(metavar="N,N", help="The first size of inputs that have an unknown one.")] = "1",
    concurrency: Annotated[str, typer.Option(metavar="N,N", help="How many calls are under way at a time.")] = "1",
    seconds: Annotated[float, typer.Option(min=0.01, max=3600, help="How long each row is measured.")] = 2.0,
    warmups: Annotated[int, typer.Option(min=1, max=10_000, help="Calls before that.")] = 3,
    signature: Annotated[str | None, typer.Option(metavar="NAME", help="The signature to call.")] = None,
    feed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="An input: JSON, @FILE.npy or @FILE.npz:KEY.  May be given many times."
        ),
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N,N", help="The shape of an input that is made up.")
    ] = None,
    values: Annotated[Values, typer.Option(help="What made-up inputs hold.")] = Values.RANDOM,
    beside: Annotated[Beside | None, typer.Option(help="Measure the model there, too, if it is installed.")] = None,
    memory_limit: Annotated[
        int | None, typer.Option(metavar="BYTES", min=1, help="The most that the arrays of a run may take.")
    ] = None,
    as_json: Annotated[
        Path | None,
        typer.Option("--json", metavar="OUT.json", dir_okay=False, help="Where to write all of it as JSON."),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Measure a model: latency, throughput, peak memory, the lag of the event loop, and the nodes that take longest.

    Inputs are made up from the signature. For example: asyncexec bench model.onnx --batch 1,16 --concurrency 1,16
    """
    shapes = parse_shapes(shape or ())
    plan = Plan(
        signature,
        _counts(batch, "--batch"),
        _counts(concurrency, "--concurrency"),
        seconds,
        warmups,
        feed or (),
        shapes,
        values,
    )
    check_folder(as_json, "--json")
    with failures_reported(debug) as console, console.status("measuring"):
        config = ax.SessionConfig(memory_limit=memory_limit)
        report = ax.run(_measured(model_path, config, plan, beside))
        if as_json is not None:
            write_file(as_json, json.dumps(dataclasses.asdict(report), indent=2).encode(), "to write what was measured")
    print_report(report)


def _counts(text: str, option: str) -> list[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdecimal() and len(word) < 5 and 0 < int(word) <= _MOST for word in words):
        raise typer.BadParameter(
            f"{text!r} is not a list of numbers from 1 to {_MOST}, such as 1,16", param_hint=option
        )
    return [int(word) for word in words]


async def _measured(path: Path, config: ax.SessionConfig, plan: Plan, beside: Beside | None) -> BenchReport:
    async with ax.load_model(path, config) as model:
        chosen = chosen_signature(model, plan.signature)
        inputs_of = {count: make_inputs(chosen, count, plan.feeds, plan.shapes, plan.values) for count in plan.batches}
        rows = await _rows("asyncexec", lambda given: lambda: chosen(**given), inputs_of, plan)
        given = inputs_of[plan.batches[-1]]
        session = await model.ready()
        fetches = [info.name for info in chosen.outputs.values()]
        feeds = {chosen.inputs[name].name: value for name, value in given.items()}
        costs = await node_costs(
            lambda metadata: session.run(fetches, feeds, options=ax.RunOptions(trace=True), metadata=metadata),
            _TRACED_STEPS,
        )
    if beside is not None:
        make = await asyncio.to_thread(runner, beside, path, chosen)
        with _on_threads(max(plan.concurrency)) as call_on_thread:
            rows += await _rows(beside.value, lambda given: call_on_thread(make(given)), inputs_of, plan)
    told = {name: f"{chosen.inputs[name].dtype.name} {_shape(value)}" for name, value in given.items()}
    return BenchReport(str(path), chosen.name, told, rows, costs, by_op(costs))


def _shape(value: object) -> str:
    return str(list(getattr(value, "shape", ())))


async def _rows(
    what: str, make: Callable[[Mapping[str, Any]], Any], inputs_of: Mapping[int, Mapping[str, Any]], plan: Plan
) -> list[Measured]:
    return [
        await measure(what, make(inputs_of[count]), count, width, plan.seconds, plan.warmups)
        for count in plan.batches
        for width in plan.concurrency
    ]


def chosen_signature(model: ax.Model, name: str | None) -> Any:
    """The signature *name*, else the one to serve, else the first."""
    found = model.signatures
    if name is None:
        name = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in found else next(iter(found))
    if name not in found:
        raise NotFoundError(f"the model has no signature {name!r}", hint=f"it has {', '.join(found)}")
    return found[name]


@contextlib.contextmanager
def _on_threads(count: int) -> Iterator[Callable[[Callable[[], Any]], object]]:
    """What turns a function that blocks into one to await, on *count* threads."""
    with ThreadPoolExecutor(count) as pool:
        yield lambda run: lambda: asyncio.get_running_loop().run_in_executor(pool, run)


def print_report(report: BenchReport) -> None:
    """Print what was measured, and what took longest."""
    console = output_console()
    inputs = ", ".join(f"{name}: {told}" for name, told in report.inputs.items())
    print_table(console, ("signature", "inputs"), [(report.signature, inputs or "none")])
    heads = (
        "",
        "batch",
        "at a time",
        "median ms",
        "p99 ms",
        "items/s",
        "loop lag p99 ms",
        "most ms",
        "peak MiB",
        "runs",
    )
    console.print()
    print_table(console, heads, [_row(each) for each in report.rows])
    for title, costs in (("ops", report.ops), ("nodes", report.nodes)):
        console.print(f"\n[bold]{title} that take longest[/bold], ms a step")
        rows = [(each.op, each.name, f"{each.ms:.3f}", f"{each.calls:g}") for each in costs[:10]]
        print_table(console, ("op", "node", "ms", "calls"), rows, len(costs) - len(rows))


def _row(one: Measured) -> tuple[str, ...]:
    memory = "" if one.peak_memory_bytes is None else f"{one.peak_memory_bytes / _MIB:,.0f}"
    times = (f"{value:.3f}" for value in (one.median_ms, one.p99_ms))
    lags = (f"{value:.2f}" for value in (one.loop_p99_ms, one.loop_most_ms))
    return (
        one.what,
        str(one.batch),
        str(one.concurrency),
        *times,
        f"{one.per_second:,.1f}",
        *lags,
        memory,
        str(one.runs),
    )
