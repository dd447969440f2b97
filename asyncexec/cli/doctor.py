"""``asyncexec doctor``: what this machine and this installation have, and what makes graphs slow on it."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from asyncexec.cli.findings import Level, findings
from asyncexec.cli.machine import EXTRAS, read_machine
from asyncexec.cli.reporting import DebugOption, failures_reported, output_console, print_table


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    debug: DebugOption = False,
) -> None:
    """Look at this machine and this installation, and tell what to mend.

    Exit code 1: something costs much time, or does not work.
    """
    with failures_reported(debug) as console:
        with console.status("looking"):
            machine = read_machine()
        found = findings(machine)
    if as_json:
        told = {"machine": dataclasses.asdict(machine), "findings": [dataclasses.asdict(each) for each in found]}
        typer.echo(json.dumps(told, indent=2))
    else:
        table = output_console()
        print_table(table, ("", "what", "found"), [(each.level.value, each.topic, each.found) for each in found], 0)
        there = sorted(set(EXTRAS) - set(machine.missing))
        table.print(f"\nextras installed: {', '.join(there) or 'none'}")
        advised = [each for each in found if each.advice]
        if advised:
            table.print("\n[bold]what to do[/bold]")
            print_table(table, ("", "what", "to do"), [(each.level.value, each.topic, each.advice) for each in advised])
    if any(each.level is Level.COSTLY for each in found):
        raise typer.Exit(1)
