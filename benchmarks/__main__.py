"""The command ``python -m benchmarks [NAME ...]``: measures, prints a table, and tells which targets are met.

Names are those of rows, or patterns of them (``'chain_*'``); without any, all rows are measured.  A missed target is no
failure: the exit code is 1 only where a row could not be measured.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
import traceback
from collections.abc import Sequence
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from asyncexec.framework.errors import MissingExtraError
from asyncexec.framework.extras import is_installed
from benchmarks import (
    async_ops,
    batching,
    checkpoints,
    cluster,
    cluster_map,
    cluster_scale,
    cluster_steps,
    control_flow,
    device_events,
    devices,
    elementwise,
    event_loop,
    event_time,
    fastapi_service,
    first_runs,
    hooks,
    memory,
    mixed_load,
    model_memory,
    model_ticker,
    models,
    native,
    regions,
    runs,
    service,
    service_client,
    service_load,
    start_up,
    streams,
    tensorflow_session,
    threads,
    tickers,
    traces,
    transport,
    workers,
)
from benchmarks.measure import Settings
from benchmarks.report import Benchmark, Row, print_table, write_json

TRACEBACK_LINES: Final = 3  # of a row that fails
# Start-up first: it is measured in other processes, while this one is small.
BENCHMARKS: Final[tuple[Benchmark, ...]] = (
    *start_up.BENCHMARKS,
    *runs.BENCHMARKS,
    *control_flow.BENCHMARKS,
    *native.BENCHMARKS,
    *devices.BENCHMARKS,
    *cluster.BENCHMARKS,
    *device_events.BENCHMARKS,
    *async_ops.BENCHMARKS,
    *workers.BENCHMARKS,
    *threads.BENCHMARKS,
    *transport.BENCHMARKS,
    *traces.BENCHMARKS,
    *hooks.BENCHMARKS,
    *regions.BENCHMARKS,
    *elementwise.BENCHMARKS,
    *models.BENCHMARKS,
    *model_ticker.BENCHMARKS,
    *batching.BENCHMARKS,
    *fastapi_service.BENCHMARKS,
    *service.BENCHMARKS,
    *service_client.BENCHMARKS,
    *service_load.BENCHMARKS,
    *cluster_steps.BENCHMARKS,
    *cluster_map.BENCHMARKS,
    *streams.BENCHMARKS,
    *checkpoints.BENCHMARKS,
    *event_time.BENCHMARKS,
    *event_loop.BENCHMARKS,
    *tickers.BENCHMARKS,
    *mixed_load.BENCHMARKS,
    *first_runs.BENCHMARKS,
    *memory.BENCHMARKS,
    *model_memory.BENCHMARKS,
    *cluster_scale.BENCHMARKS,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line names; the exit code."""
    options = _parser().parse_args(arguments)
    if options.list:
        print("\n".join(benchmark.name for benchmark in BENCHMARKS))
        return 0
    settings = Settings(options.quick, options.full, not options.no_tensorflow)
    chosen = select(options.names, settings)
    if not chosen:
        print(f"no row is named {' or '.join(options.names)}; --list shows all names", file=sys.stderr)
        return 2
    about = machine(settings)
    rows = [row for benchmark in chosen if (row := measured(benchmark, settings)) is not None]
    print_table(rows, ", ".join(f"{key} {value}" for key, value in about.items()))
    if options.json is not None:
        write_json(options.json, rows, about)
    return 0 if len(rows) == len(chosen) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows to measure, or patterns such as 'chain_*'")
    parser.add_argument("--quick", action="store_true", help="a few rounds of each, and nothing large unless named")
    parser.add_argument("--full", action="store_true", help="TensorFlow on 100,000 nodes too, which takes minutes")
    parser.add_argument("--no-tensorflow", action="store_true", help="leave TensorFlow out, though it is installed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, every round of them")
    parser.add_argument("--list", action="store_true", help="print the names of the rows, and end")
    return parser


def select(names: Sequence[str], settings: Settings) -> list[Benchmark]:
    """The benchmarks that *names* and *settings* ask for, in their order."""
    if names:
        return [each for each in BENCHMARKS if any(fnmatch(each.name, name) for name in names)]
    return [each for each in BENCHMARKS if not (settings.is_quick and each.is_long)]


def measured(benchmark: Benchmark, settings: Settings) -> Row | None:
    """The row of *benchmark*; None, and a word about why on stderr, where it could not be measured.

    Collections walk what the row makes, not what TensorFlow's modules and the rows before have left.
    """
    print(f"measuring {benchmark.name}", file=sys.stderr, flush=True)
    gc.collect()
    gc.freeze()
    try:
        return benchmark.measure(settings)
    except MissingExtraError as error:
        print(f"{benchmark.name}: {error}", file=sys.stderr)
    except Exception:
        traceback.print_exc(limit=-TRACEBACK_LINES)
    finally:
        gc.unfreeze()
    return None


def machine(settings: Settings) -> dict[str, Any]:
    """What the figures depend on."""
    found: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "machine": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "numpy": version("numpy"),
    }
    if is_installed("uvloop"):
        found["uvloop"] = version("uvloop")
    if tensorflow_session.takes_part(settings):
        found["TensorFlow"] = tensorflow_session.tensorflow().__version__
    if hasattr(os, "getloadavg"):
        found["load"] = round(os.getloadavg()[0], 2)
    return found


if __name__ == "__main__":
    sys.exit(main())
