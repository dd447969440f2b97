"""What goes to the terminal: failures in a few lines and progress on stderr, tables of results on stdout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from asyncexec.framework.errors import OpError

DebugOption: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")]

MOST_ROWS: Final = 30  # of a table in the terminal
_WIDE: Final = 100_000  # characters: where nobody reads on a screen, nothing is cut
INTERRUPTED: Final = 130  # the exit code of programs that Ctrl-C has ended


def check_folder(path: Path | None, option: str) -> None:
    """BadParameter when the folder that *path* is to be written into is missing."""
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(
            f"there is no folder {str(path.parent)!r} to write {path.name} into", param_hint=option
        )


@contextmanager
def failures_reported(debug: bool) -> Iterator[Console]:
    """Turns what the block raises into a few lines and exit code 1, Ctrl-C into 130; yields the console for progress.

    With *debug* exceptions pass, and Python shows the traceback.
    """
    console = Console(stderr=True)
    try:
        yield console
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        console.print("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if debug:
            raise
        console.print(plain("\n".join(error_lines(error))), soft_wrap=True)
        raise typer.Exit(1) from error


def error_lines(error: Exception) -> list[str]:
    """What failed and where, why, and what would mend it: three lines at most."""
    hint = "--debug shows where it comes from"
    head = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, OpError):
        # Not error.user_line: the nodes come from a file, so that line is one of ours.
        place = " ".join(
            f"{word} {name}" for word, name in (("node", error.node), ("op", error.op)) if name is not None
        )
        head, hint = f"{type(error).__name__}: {error.message}{f' ({place})' if place else ''}", error.hint or ""
    cause = error.__cause__
    lines = [head, f"cause: {type(cause).__name__}: {cause}" if cause else "", f"hint: {hint}" if hint else ""]
    return [" ".join(line.split()) for line in lines if line]


def plain(text: str) -> Text:
    """*text* as it is, for the terminal: no markup, and what would steer the terminal spelled out."""
    return Text("".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text))


def output_console() -> Console:
    """The console for results: as wide as the terminal, and as wide as need be where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


def print_table(console: Console, heads: Sequence[str], rows: Sequence[Sequence[object]], num_more: int = 0) -> None:
    """Print the first rows of a table, and how many more there are; *num_more* of them are not among *rows*."""
    table = Table(*heads, box=None, pad_edge=False, header_style="dim")
    for row in rows[:MOST_ROWS]:
        table.add_row(*(plain(str(cell)) for cell in row))
    console.print(table)
    num_more += max(0, len(rows) - MOST_ROWS)
    if num_more:
        console.print(f"[dim]... and {num_more:,} more[/dim]")
