"""What goes to the terminal beside results: failures as panels and progress, both on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from asyncexec.framework.errors import OpError

DebugOption: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")]

INTERRUPTED: Final = 130  # the exit code of programs that Ctrl-C has ended


def check_folder(path: Path | None, option: str) -> None:
    """BadParameter when the folder that *path* is to be written into is missing."""
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(
            f"there is no folder {str(path.parent)!r} to write {path.name} into", param_hint=option
        )


@contextmanager
def failures_reported(debug: bool) -> Iterator[Console]:
    """Turns what the block raises into a panel and exit code 1, Ctrl-C into 130; yields the console for progress.

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
        console.print(failure_panel(error))
        raise typer.Exit(1) from error


def failure_panel(error: Exception) -> Panel:
    """What failed, where, why, and what would mend it."""
    lines = [escape(error.message if isinstance(error, OpError) else str(error) or type(error).__name__)]
    if isinstance(error, OpError):
        # Not error.user_line: the nodes come from a file, so that line is one of ours.
        facts = [("node", error.node), ("op", error.op), ("hint", error.hint)]
        lines += [f"[bold]{name}[/bold]  {escape(str(value))}" for name, value in facts if value is not None]
    if error.__cause__ is not None:
        lines.append(f"[bold]cause[/bold]  {escape(f'{type(error.__cause__).__name__}: {error.__cause__}')}")
    if not isinstance(error, OpError):
        lines.append("[bold]hint[/bold]  --debug shows where it comes from")
    return Panel("\n".join(lines), title=type(error).__name__, title_align="left", border_style="red")
