"""What is reported: rows of figures, each with its targets; as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from asyncexec.framework.extras import is_installed
from benchmarks.measure import Settings, Times, ratios

OURS: Final = "asyncexec"
FLOOR: Final = "floor"
TENSORFLOW: Final = "TensorFlow"
TENSORFLOW_PLAIN: Final = "TensorFlow, optimizer off"
HEADINGS: Final = ("row", "unit", "asyncexec", "floor", "/ floor", "TensorFlow", "/ TF", "target", "met")


@dataclass(frozen=True, slots=True)
class Target:
    """What a row must show: *measured* at most *limit*.  None was measured where nothing is there to compare with."""

    text: str
    measured: float | None
    limit: float

    @property
    def is_met(self) -> bool | None:
        """Whether it is met; None if that cannot be told here."""
        return None if self.measured is None else self.measured <= self.limit


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    unit: str
    times: Mapping[str, Times]  # by contestant
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()

    def tensorflows(self) -> list[Times]:
        """The times of TensorFlow, in each of the ways it was run."""
        return [times for name, times in self.times.items() if name.startswith(TENSORFLOW)]

    def floors(self) -> list[Times]:
        """The times of the floor, if there is one."""
        return [self.times[FLOOR]] if FLOOR in self.times else []


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A named measurement that gives a row."""

    name: str
    measure: Callable[[Settings], Row]
    is_long: bool = field(default=False)  # left out of a quick run, unless it is named


def at_most_of_tensorflow(row_times: Mapping[str, Times], share: float) -> Target:
    """The target of taking at most *share* of TensorFlow's time, in medians and in bests."""
    row = Row("", "", row_times)
    found = ratios(row.times[OURS], row.tensorflows())
    return Target(f"at most {share:.3g} of TensorFlow's", None if found is None else max(found), share)


def at_most_of_floor(times: Mapping[str, Times], share: float, whose: str = "hand-written Python's") -> Target:
    """The target of taking at most *share* of the floor's time, in medians."""
    found = ratios(times[OURS], [times[FLOOR]])
    return Target(f"at most {share:.3g} of {whose}", None if found is None else found[0], share)


def summary(row: Row) -> tuple[str, ...]:
    """The cells of *row*, under the headings."""
    floors, tensorflows = row.floors(), row.tensorflows()
    return (
        row.name,
        row.unit,
        _shown(row.times[OURS]),
        " | ".join(map(_shown, floors)),
        _shown_ratios(ratios(row.times[OURS], floors)),
        " | ".join(map(_shown, tensorflows)),
        _shown_ratios(ratios(row.times[OURS], tensorflows)),
        "\n".join(_shown_target(target) for target in row.targets),
        "\n".join({True: "yes", False: "NO", None: "?"}[target.is_met] for target in row.targets),
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _shown(times: Times) -> str:
    if len(times.values) == 1:
        return _number(times.median)
    return f"{_number(times.median)} ({_number(times.best)})"


def _shown_ratios(found: tuple[float, float] | None) -> str:
    return "" if found is None else f"{found[0]:.3g} ({found[1]:.3g})"


def _shown_target(target: Target) -> str:
    measured = "" if target.measured is None else f": {_number(target.measured)}"
    return f"{target.text}{measured}"


def print_table(rows: Iterable[Row], title: str) -> None:
    """Print *rows*, with rich where it is installed and there is a terminal, else in plain columns."""
    rows = list(rows)
    print(title)
    print("median (best) of each; ratios of medians (of bests); several TensorFlow figures: optimizer on | off")
    if is_installed("rich"):
        _print_rich(rows)
    else:
        _print_plain(rows)
    for row in rows:
        for note in row.notes:
            print(f"{row.name}: {note}")


def _print_rich(rows: list[Row]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("row", "unit", "target") else "right")
    styles = {True: "", None: "", False: "red"}
    for row in rows:
        missed = any(target.is_met is False for target in row.targets)
        table.add_row(*summary(row), style=styles[not missed])
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)


def _print_plain(rows: list[Row]) -> None:
    lines = [HEADINGS, *(tuple(cell.replace("\n", "; ") for cell in summary(row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def as_json(row: Row) -> dict[str, Any]:
    """*row* as JSON data, every round of it."""
    return {
        "name": row.name,
        "unit": row.unit,
        "times": {
            name: {"median": times.median, "best": times.best, "rounds": list(times.values)}
            for name, times in row.times.items()
        },
        "targets": [
            {"text": each.text, "measured": each.measured, "limit": each.limit, "met": each.is_met}
            for each in row.targets
        ],
        "notes": list(row.notes),
    }


def write_json(path: Path, rows: Iterable[Row], machine: Mapping[str, Any]) -> None:
    """Write the machine and *rows* to a file."""
    content = {"machine": dict(machine), "rows": [as_json(row) for row in rows]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
